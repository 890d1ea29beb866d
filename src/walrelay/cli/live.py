"""What a user sees of a pipeline that runs on: tables and phases, lag and rates; elsewhere a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from walrelay.cli.progress import Board, PlainLines, clock, duration, failure_words, printable
from walrelay.cli.status import STYLES
from walrelay.model.sizes import size
from walrelay.workers.report import Silent, TableReport

if TYPE_CHECKING:
    from walrelay.pipeline import Pipeline
    from walrelay.workers.status import PipelineStatus

QUIET_SECONDS = 10.0
_ROOM = 7
"""Lines that the board needs besides its tables."""


def lag_of(status: PipelineStatus) -> str:
    """How far the destination is behind, or since when nobody knows."""
    if status.paused:
        return "paused"
    if status.lag_seconds is not None:
        return f"lag {status.lag_seconds:.1f} s"
    return "lag unknown" if status.unknown_since is None else f"lag unknown since {clock(status.unknown_since)}"


class LiveBoard(Board):
    """The copy's board while tables are copied; then the phases, the lag and the rates."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._pipeline: Pipeline | None = None
        self._rows: dict[str, int] = {}
        self._began = time.monotonic()
        self._seen = (time.monotonic(), 0)
        self._rate = 0.0
        self._starting = Spinner("dots")

    def watch(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def table_finished(self, report: TableReport) -> None:
        super().table_finished(report)
        if report.error is None:
            self._rows[str(report.name)] = report.rows
        else:
            self.notice(failure_words(report.name, report.error))

    def __rich__(self) -> Group:
        status = self._pipeline.status() if self._pipeline is not None else None
        if status is None and not self._tables:
            self._starting.update(text=Text(f"starting Spark and capture {duration(time.monotonic() - self._began)}"))
            return Group(self._starting)
        if status is None or any(table.phase in ("init", "data_sync") for table in status.tables):
            return super().__rich__()
        return Group(self._heading(status), self._tables_of(status))

    def _heading(self, status: PipelineStatus) -> Text:
        now = time.monotonic()
        then, before = self._seen
        if now - then >= 1.0:
            self._rate = (status.changes - before) / (now - then)
            self._seen = (now, status.changes)
        kept = status.capture.retained_wal_bytes if status.capture is not None else None
        # Two lines: on 80 columns one would be broken somewhere.
        return Text.assemble(
            ("running ", "bold green"),
            (duration(now - self._began), "dim"),
            f"  {lag_of(status)}  {status.changes:,} changes, {self._rate:,.0f}/s\n",
            (f"at {status.position}", "dim"),
            ("" if kept is None else f"  WAL kept {size(kept)}", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )

    def _tables_of(self, status: PipelineStatus) -> Table:
        grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        grid.add_column("table", no_wrap=True)
        grid.add_column("phase", no_wrap=True)
        # After a restart nobody copies.
        if self._rows:
            grid.add_column("copied rows", justify="right", no_wrap=True)
        room = max(3, self._console.height - _ROOM)
        for table in status.tables[:room]:
            rows = self._rows.get(str(table.name))
            grid.add_row(
                Text(printable(str(table.name))),
                Text(table.phase.replace("_", " "), style=STYLES.get(table.phase, "cyan")),
                *([] if rows is None else [f"{rows:,}"]),
            )
        if len(status.tables) > room:
            grid.add_row(Text(f"… {len(status.tables) - room:,} more", style="dim"))
        return grid


class LivePlain(PlainLines):
    """A line for each table that was copied, and one about the whole now and then."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._stopping = threading.Event()
        self._pipeline: Pipeline | None = None
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def watch(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()

    def _tell(self) -> None:
        while not self._stopping.wait(QUIET_SECONDS):
            status = self._pipeline.status() if self._pipeline is not None else None
            if status is not None:
                ready = sum(table.phase == "ready" for table in status.tables)
                self.notice(
                    f"{ready} of {len(status.tables)} tables ready, {status.changes:,} changes,"
                    f" {lag_of(status)}, at {status.position}"
                )


class Unseen(Silent):
    """Shows nothing: a log has the terminal."""

    def watch(self, pipeline: Pipeline) -> None: ...


@contextmanager
def live_display(
    console: Console, *, plain: bool = False, silent: bool = False
) -> Iterator[LiveBoard | LivePlain | Unseen]:
    """A listener that shows the run on stderr; give it the pipeline with `watch`."""
    if silent:
        yield Unseen()
        return
    if plain or not console.is_interactive:
        lines = LivePlain(console)
        try:
            yield lines
        finally:
            lines.close()
        return
    board = LiveBoard(console)
    with Live(board, console=console, refresh_per_second=4, redirect_stdout=False):
        yield board
