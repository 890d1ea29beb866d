"""`walrelay preflight`: what the source lacks, and the remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.errors import WalrelayError

if TYPE_CHECKING:
    from rich.text import Text

    from walrelay.control.preflight import Report


class PreflightMode(StrEnum):
    """What the source is going to be asked for."""

    COPY = "copy"
    BOTH = "both"


def preflight_command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The source: postgresql://user@host:5432/database.")],
    publication: Annotated[str, typer.Option("--publication", help="The publication that names the tables.")],
    mode: Annotated[
        PreflightMode, typer.Option("--mode", help="A copy alone, or a copy that then follows the changes.")
    ] = PreflightMode.BOTH,
    json_output: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every line of long remedies.")] = False,
) -> None:
    """Say what is missing on the source, and what to do about it. Changes nothing there."""
    report = _ask(url, publication, mode)
    if json_output:
        typer.echo(report.to_json())
    else:
        show_findings(report, verbose)
    raise typer.Exit(0 if report.ok else 1)


def _ask(url: str, publication: str, mode: PreflightMode) -> Report:
    # Imported when asked for: they load the decoders, and --help need not wait for these.
    from rich.console import Console

    from walrelay.control.preflight import Report, preflight
    from walrelay.postgres.source import PostgresSource

    with Console(stderr=True).status("asking the source"):
        try:
            source = PostgresSource(url, publication=publication)
        except WalrelayError as error:
            return Report.refused("", error)
        return preflight(source, mode="copy" if mode is PreflightMode.COPY else "both")


_LONGEST_REMEDY = 10
"""Lines about one finding: a publication may have hundreds of tables."""
_UNWRAPPED = 10_000  # in a pipe or a log, a finding is a line
_MARKS = {"ok": ("✔", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "error": ("✘", "red")}


def show_findings(report: Report, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNWRAPPED
    width = max(len(finding.check) for finding in report.findings)
    for finding in report.findings:
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1)
        line.add_column(width=width)
        line.add_column()
        line.add_row(Text(*_MARKS[finding.severity.value]), Text(finding.check), Text(finding.message))
        console.print(line)
        remedies = (finding.remedy or "").splitlines()
        shown = remedies if verbose or len(remedies) <= _LONGEST_REMEDY else remedies[: _LONGEST_REMEDY - 1]
        for remedy in shown:
            # Not wrapped, since it may be SQL to be pasted.
            console.print(Text(f"    {remedy}", style="dim"), soft_wrap=True)
        if len(shown) < len(remedies):
            console.print(Text(f"    … and {len(remedies) - len(shown):,} more lines: --verbose prints them"))
    console.print(_verdict(report))


def _verdict(report: Report) -> Text:
    from rich.text import Text

    from walrelay.control.preflight import Severity

    problems, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    if problems:
        return Text(f"{problems} problem{'' if problems == 1 else 's'}", style="bold red")
    beware = f", with {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    return Text(f"ready{beware}", style="bold green")
