"""`walrelay status`: tables, phases and lag of a pipeline, running or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE, Id, Json, Log, State, Store, place_of
from walrelay.model.sizes import size

if TYPE_CHECKING:
    from rich.table import Table

    from walrelay.control.status import StatusReport, TableLine

STYLES = {"ready": "green", "errored": "bold red", "init": "dim"}
UNHEALTHY, NOT_RUNNING = 1, 3
_DOES = {
    "init": "waits to be copied",
    "data_sync": "is being copied",
    "finished_copy": "is copied, catches up next",
    "sync_wait": "catches up next",
    "catchup": "catches up",
    "sync_done": "is handed over next",
    "ready": "follows the source",
}


def status_command(
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    running: Annotated[bool, typer.Option("--running", help="Exit code 3 when the pipeline does not run.")] = False,
    as_json: Json = False,
) -> None:
    """Show where a pipeline stands: tables, lag, the change log, capture, what it does next.

    Exit code 0 when all is well, 1 when a table is in error, changes are missing or the last run ended in an error.
    """
    from walrelay.control.status import pipeline_status

    report = pipeline_status(place_of(state, store, pipeline, log))
    if as_json:
        typer.echo(report.to_json())
    else:
        show(report)
    if running and not report.running:
        raise typer.Exit(NOT_RUNNING)
    raise typer.Exit(0 if report.healthy else UNHEALTHY)


def show(report: StatusReport) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(headline(report), soft_wrap=True)
    console.print(tables_of(report))
    for sentence in remarks(report):
        console.print(sentence, soft_wrap=True, markup=False)
    for line in report.tables:
        if line.reason:
            console.print(f"[bold red]{line.name}[/]: {line.reason} [dim]({line.code})[/]", soft_wrap=True)
            if line.solution:
                console.print(f"  [bold]what to do[/] {line.solution}", soft_wrap=True)
    if report.ended is not None:
        console.print(f"[bold red]error[/] {report.ended.message} [dim]({report.ended.code})[/]", soft_wrap=True)
        if report.ended.hint:
            console.print(f"  [bold]what to do[/] {report.ended.hint}", soft_wrap=True)


def remarks(report: StatusReport) -> list[str]:
    """What was treated by policy, and what waits in the quarantine."""
    from walrelay.model.special import Special

    lines = [
        f"{table}: {count:,} × {Special[kind].value}, treated by policy ({road})"
        for table, roads in report.treated.items()
        for road, counts in roads.items()
        for kind, count in counts.items()
    ]
    lines += [
        f"{table}: {count:,} changes in the quarantine hold it; see `walrelay quarantine list`"
        for table, count in report.quarantined.items()
    ]
    return lines


def headline(report: StatusReport) -> str:
    from walrelay.cli.capture import describe

    lines = [
        f"[bold]{report.pipeline}[/] is {running_words(report)} · applied up to {report.applied_lsn or 'nothing yet'}"
        f" · {behind(report)}",
        f"log: {report.log_segments:,} segments, {size(report.log_bytes)}, up to {report.log_end_lsn or 'nothing yet'}",
    ]
    if report.capture is not None:
        lines.append(f"capture: {describe(report.capture)}")
    for one in report.readers:
        if not one.is_this:
            since = f"{one.seconds:,.0f} s ago" if one.seconds < 86_400 else f"{one.seconds / 86_400:,.0f} days ago"
            lines.append(f"also read by {one.name}, up to {one.lsn}, {since}")
    return "\n".join(lines)


def running_words(report: StatusReport) -> str:
    from walrelay.cli.progress import clock

    if report.paused_since is not None:
        how = "running, but " if report.running else "not running, and "
        return f"{how}[yellow]paused[/] since {clock(report.paused_since)}"
    if report.running:
        return "[green]running[/]"
    ended = report.ended
    return "not running" if ended is None else f"[bold red]not running[/] since an error at {clock(ended.at)}"


def behind(report: StatusReport) -> str:
    from walrelay.cli.progress import clock

    if report.lag_seconds is not None:
        return f"{report.lag_seconds:.1f} s, {size(report.lag_bytes)} behind"
    if report.unknown_since is None:
        return "how far behind is unknown"
    return f"how far behind is unknown since {clock(report.unknown_since)}"


def tables_of(report: StatusReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("table")
    grid.add_column("phase")
    grid.add_column("now and next")
    for line in report.tables:
        phase = Text(line.phase.replace("_", " "), style=STYLES.get(line.phase, "cyan"))
        grid.add_row(Text(line.name), phase, Text(does_next(line, report.running), style="dim"))
    return grid


def does_next(line: TableLine, running: bool) -> str:
    import time

    if line.wanted is not None:
        return f"{line.wanted} was asked for" + ("" if running else ", at the next start")
    if line.phase != "errored":
        return _DOES[line.phase] if running else ""
    if not running:
        return "is tried again at the next start"
    if line.retry_at is None:
        return "waits for you: see below, then `walrelay rollback` or `resync`"
    return f"is tried again in {max(0.0, line.retry_at - time.time()):.0f} s"
