"""How a run ended, for people: on stderr, since stdout may carry rows."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from walrelay.cli.progress import duration, printable, stderr_console
from walrelay.workers.report import RunSummary, TableReport


def show_summary(summary: RunSummary, console: Console | None = None) -> None:
    """Print tables, rows and time, what was treated by policy, and the tables that failed with what to do."""
    console = console or stderr_console()
    console.print(_headline(summary), soft_wrap=True)
    show_treated(summary, console)
    for report in summary.failed:
        _show_failure(console, report)


def show_treated(summary: RunSummary, console: Console | None = None) -> None:
    """Print what was treated by policy in this run, in copies and in changes, if anything was."""
    if summary.treated:
        console = console or stderr_console()
        console.print(Text("values that the destination cannot hold, treated by policy:"), soft_wrap=True)
        console.print(_treated(summary))


def _headline(summary: RunSummary) -> Text:
    copied = len(summary.tables) - len(summary.failed)
    of = f" of {len(summary.tables):,}" if summary.failed else ""
    tables, rows = _noun("table", len(summary.tables)), _noun("row", summary.rows)
    line = Text.assemble(
        (f"{copied:,}{of} {tables}, {summary.rows:,} {rows}", "bold"),
        f" in {duration(summary.seconds)}, {summary.rows_per_second:,.0f} rows/s",
    )
    if summary.failed:
        line.append(f"; {len(summary.failed):,} failed", style="bold red")
    return line


def _noun(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _treated(summary: RunSummary) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", min_width=10)
    grid.add_column()
    for special, count in summary.treated.most_common():
        grid.add_row(f"{count:,}", special.value)
    return grid


def _show_failure(console: Console, report: TableReport) -> None:
    error = report.error
    assert error is not None  # it is among the failed
    tries = f" after {report.attempts} attempts" if report.attempts > 1 else ""
    console.print(
        Text.assemble(("✘ ", "red"), (printable(str(report.name)), "bold"), f" failed{tries} ({error.code})"),
        soft_wrap=True,
    )
    for label, said in (("", error.message), ("what to do: ", error.hint)):
        for line in said.splitlines():
            console.print(Text(f"    {label}{printable(line)}"), soft_wrap=True)
