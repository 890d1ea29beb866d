"""`walrelay status`: tables, phases and lag of a pipeline, running or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from walrelay.control.status import StatusReport

STYLES = {"ready": "green", "errored": "bold red", "init": "dim"}


def status_command(
    state: Annotated[Path, typer.Option(help="The directory that `replicate --state` uses.")] = Path("walrelay-state"),
    pipeline: Annotated[
        str | None, typer.Option("--id", help="The pipeline. [default: the only one in the state]")
    ] = None,
    log: Annotated[str | None, typer.Option(help="The change log. [default: log in --state]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show where a pipeline stands: tables and phases, lag, the change log, capture."""
    from rich.console import Console

    from walrelay.control.status import only_pipeline, pipeline_status

    report = pipeline_status(state, pipeline or only_pipeline(state), log)
    if as_json:
        typer.echo(report.to_json())
        return
    console = Console(highlight=False)
    console.print(headline(report), soft_wrap=True)
    console.print(tables_of(report))
    for line in report.tables:
        if line.reason:
            console.print(f"[bold red]{line.name}[/]: {line.reason}", soft_wrap=True)
            if line.solution:
                console.print(f"  [bold]what to do[/] {line.solution}", soft_wrap=True)


def headline(report: StatusReport) -> str:
    from walrelay.cli.capture import describe, size

    lines = [
        f"[bold]{report.pipeline}[/] is {'[green]running[/]' if report.running else 'not running'}"
        f" · applied up to {report.applied_lsn or 'nothing yet'}"
        f" · {report.lag_seconds:.1f} s, {size(report.lag_bytes)} behind",
        f"log: {report.log_segments:,} segments, {size(report.log_bytes)}, up to {report.log_end_lsn or 'nothing yet'}",
    ]
    if report.capture is not None:
        lines.append(f"capture: {describe(report.capture)}")
    return "\n".join(lines)


def tables_of(report: StatusReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("table")
    grid.add_column("phase")
    for line in report.tables:
        grid.add_row(Text(line.name), Text(line.phase.replace("_", " "), style=STYLES.get(line.phase, "cyan")))
    return grid
