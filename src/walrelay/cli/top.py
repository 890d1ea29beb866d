"""`walrelay top`: a live view of a pipeline that runs in another process, from its store and its log."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE, Id, Log, State, Store, place_of
from walrelay.cli.status import STYLES, behind, does_next, running_words

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from walrelay.control.status import StatusReport, TableLine
    from walrelay.control.stores import Place

_ROOM = 8
"""Lines that a frame needs besides its tables."""
WIDE = 110
"""From so many columns on there is room for what was treated and what waits in the quarantine."""
_ORDER = ("errored", "data_sync", "init", "finished_copy", "sync_wait", "catchup", "sync_done", "ready")
"""Which tables are shown where there is no room for all: those in error first, then those at work."""


@dataclass(frozen=True)
class Rates:
    """Between two frames, a second."""

    changes: float = 0.0
    wal_bytes: float = 0.0


def top_command(
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    every: Annotated[float, typer.Option(help="Seconds between two frames.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Watch a pipeline that runs elsewhere: tables, lag, rates, the slot, the log. Ends with Ctrl-C."""
    from rich.console import Console

    console = Console(highlight=False)
    place = place_of(state, store, pipeline, log)
    if once:
        from walrelay.control.status import pipeline_status

        console.print(frame(pipeline_status(place), None, console))
        return
    _watch(place, console, every)


def _watch(place: Place, console: Console, every: float) -> None:
    from rich.live import Live

    from walrelay.control.status import pipeline_status

    before, seen_at = pipeline_status(place), time.monotonic()
    # The alternate screen, as such programs do; a file or a pipe gets the frames one after the other.
    with Live(frame(before, None, console), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                now, at = pipeline_status(place), time.monotonic()
                live.update(frame(now, rates(before, now, at - seen_at), console), refresh=True)
                before, seen_at = now, at
        except KeyboardInterrupt:
            return


def rates(before: StatusReport, now: StatusReport, seconds: float) -> Rates | None:
    """How fast it goes; None when capture was started anew in between."""
    from walrelay.model.lsn import Lsn

    then, later = before.capture, now.capture
    if then is None or later is None or later.pid != then.pid or seconds <= 0:
        return None
    applied = Lsn.parse(now.applied_lsn or "0/0") - Lsn.parse(before.applied_lsn or "0/0")
    return Rates((later.rows - then.rows) / seconds, max(0, applied) / seconds)


def frame(report: StatusReport, speed: Rates | None, console: Console) -> Group:
    """One picture, as wide and as high as the console."""
    from rich.console import Group
    from rich.text import Text

    head = [Text.from_markup(line, overflow="ellipsis") for line in _heading(report, speed)]
    for line in head:
        line.no_wrap = True
    return Group(*head, Text(), _grid(report, console), *_rest(report, console))


def _heading(report: StatusReport, speed: Rates | None) -> list[str]:
    from rich.markup import escape

    from walrelay.model.sizes import size

    capture = report.capture
    kept = "" if capture is None or capture.retained_wal_bytes is None else size(capture.retained_wal_bytes)
    phases = Counter(line.phase for line in report.tables)
    errors = f" · [bold red]{phases['errored']:,} in error[/]" if phases["errored"] else ""
    ready, at = f"{phases['ready']:,} of {len(report.tables):,} tables ready", report.applied_lsn or "–"
    lines = [
        f"[bold]{escape(report.pipeline)}[/] is {running_words(report)} · {behind(report)}",
        f"{ready}{errors} · applied up to {at}",
        f"log {size(report.log_bytes)} in {report.log_segments:,} segments" + (f" · WAL kept {kept}" if kept else ""),
    ]
    if capture is None:
        lines.append("[dim]capture does not run[/]")
    else:
        fast = f"{capture.rows_per_second:,.0f} changes/s" if speed is None else f"{speed.changes:,.0f} changes/s"
        slow = "" if speed is None else f", {size(int(speed.wal_bytes))}/s applied"
        lines.append(f"capture is {escape(capture.state)} · {fast}{slow} · {capture.rows:,} so far")
    return lines


def _grid(report: StatusReport, console: Console) -> Table:
    from rich.table import Table

    is_wide = console.width >= WIDE
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=True)
    # The last column takes what the others leave.
    grid.add_column("table", no_wrap=True, overflow="ellipsis", max_width=60 if is_wide else 34)
    grid.add_column("phase", no_wrap=True)
    if is_wide:
        grid.add_column("treated", justify="right", no_wrap=True)
        grid.add_column("quarantined", justify="right", no_wrap=True)
    grid.add_column("now and next", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in _shown(report, console):
        grid.add_row(*_row(report, line, is_wide))
    return grid


def _row(report: StatusReport, line: TableLine, is_wide: bool) -> list[Text]:
    from rich.text import Text

    from walrelay.cli.progress import printable

    treated = sum(count for kinds in report.treated.get(line.name, {}).values() for count in kinds.values())
    held = report.quarantined.get(line.name, 0)
    next_ = does_next(line, report.running)
    error = f"{line.code}: {line.reason}; " if line.phase == "errored" else ""
    return [
        Text(printable(line.name)),
        Text(line.phase.replace("_", " "), style=STYLES.get(line.phase, "cyan")),
        *([Text(f"{treated:,}" if treated else ""), Text(f"{held:,}" if held else "")] if is_wide else []),
        Text(printable(error + next_), style="dim"),
    ]


def _shown(report: StatusReport, console: Console) -> list[TableLine]:
    ranked = sorted(report.tables, key=lambda line: _ORDER.index(line.phase))
    room = max(3, console.height - _ROOM) if console.is_terminal else len(ranked)
    return ranked[:room]


def _rest(report: StatusReport, console: Console) -> list[Text]:
    from rich.text import Text

    hidden = len(report.tables) - len(_shown(report, console))
    return [Text(f"… {hidden:,} more", style="dim")] if hidden else []
