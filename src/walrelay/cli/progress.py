"""What a user sees of a run while it goes: a live board on a terminal, elsewhere plain lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from walrelay.errors import CopyAgainError, WalrelayError
from walrelay.model.names import TableName
from walrelay.workers.report import Listener, Silent, TableReport

FRAMES_PER_SECOND = 8
# What the board needs besides its tables: heading, total, the line about hidden tables, and the cursor's own.
_OTHER_LINES = 4
_NARROWEST_WITH_BAR = 80
_BAR_WIDTH = 20
# The columns after the name, grown as far as they may, with the gaps between.
_NUMBERS_WIDTH = 2 + 12 + 2 + 13 + 2 + 10 + 2 + 9
_LEAST_NAME = 14
_LAST_DONE = 5


def stderr_console() -> Console:
    """Where progress and summaries go, since stdout may carry rows."""
    # FORCE_COLOR makes rich take any file for a terminal; colours may be wanted there, a moving board is not.
    return Console(stderr=True, highlight=False, force_interactive=None if sys.stderr.isatty() else False)


@contextmanager
def progress_display(
    console: Console | None = None, *, plain: bool = False, silent: bool = False
) -> Iterator[Listener]:
    """A listener that shows the run on stderr: a live board on a terminal, otherwise one line a table."""
    if silent:
        yield Silent()
        return
    console = console or stderr_console()
    if plain or not console.is_interactive:
        yield PlainLines(console)
        return
    board = Board(console)
    # Rows may be going to stdout; those are not ours to catch.
    with Live(board, console=console, refresh_per_second=FRAMES_PER_SECOND, redirect_stdout=False):
        yield board


class PlainLines:
    """One line a finished table, and what must be said in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.RLock()  # a signal may come in the middle of a line

    def run_started(self, tables: dict[TableName, int]) -> None: ...

    def table_started(self, table: TableName, attempt: int) -> None: ...

    def table_progress(self, table: TableName, rows: int) -> None: ...

    def table_writing(self, table: TableName, rows: int) -> None: ...

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        self.notice(retry_words(table, error, seconds))

    def table_finished(self, report: TableReport) -> None:
        if report.error is None:
            rate = report.rows / max(report.seconds, 0.001)
            self.notice(f"{report.name}: {report.rows:,} rows in {duration(report.seconds)}, {rate:,.0f} rows/s")
        else:
            self.notice(failure_words(report.name, report.error))

    def notice(self, message: str) -> None:
        with self._lock:
            self._console.print(Text(printable(message)), soft_wrap=True)


class Phase(Enum):
    """Where a table stands, in the word and colour that the board shows."""

    WAITING = ("waiting", "dim")
    COPYING = ("copying", "cyan")
    LOADING = ("loading", "blue")
    RETRYING = ("retry", "yellow")
    FAILED = ("failed", "red")
    DONE = ("done", "green")

    @property
    def word(self) -> str:
        return self.value[0]

    @property
    def style(self) -> str:
        return self.value[1]


ACTIVE = (Phase.COPYING, Phase.LOADING, Phase.RETRYING)
ENDED = (Phase.FAILED, Phase.DONE)


@dataclass(slots=True)
class Progress:
    """One table's, as last heard of."""

    name: TableName
    estimate: int
    phase: Phase = Phase.WAITING
    attempt: int = 1
    rows: int = 0
    begun: float = 0.0
    """When this attempt began."""
    seconds: float | None = None
    """How long it all took, once it has ended."""

    def elapsed(self, now: float) -> float | None:
        if self.phase is Phase.WAITING:
            return None
        return now - self.begun if self.seconds is None else self.seconds

    @property
    def expected(self) -> int:
        """The rows there will be, as far as one can tell: the estimate may be missing or too small."""
        return self.rows if self.phase in ENDED or self.phase is Phase.LOADING else max(self.estimate, self.rows)

    @property
    def is_estimated(self) -> bool:
        """Whether a bar can tell something: an estimate that has been overtaken says no more."""
        return self.phase not in (Phase.COPYING, Phase.RETRYING) or self.rows < self.estimate


class Board:
    """The tables of a run and how far they are; a listener, and something that rich can draw. Thread-safe."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._lock = threading.RLock()  # a signal may come in the middle of a line
        self._tables: dict[TableName, Progress] = {}
        self._begun = clock()
        self._ended: list[TableName] = []

    def run_started(self, tables: dict[TableName, int]) -> None:
        with self._lock:
            self._tables = {name: Progress(name, max(rows, 0)) for name, rows in tables.items()}
            self._begun = self._clock()

    def table_started(self, table: TableName, attempt: int) -> None:
        with self._lock:
            progress = self._of(table)
            progress.phase = Phase.COPYING if attempt == 1 else Phase.RETRYING
            progress.attempt, progress.rows, progress.begun = attempt, 0, self._clock()

    def table_progress(self, table: TableName, rows: int) -> None:
        with self._lock:
            progress = self._of(table)
            # Heard from another thread than the rest, maybe late.
            if progress.phase in (Phase.COPYING, Phase.RETRYING):
                progress.rows = max(progress.rows, rows)

    def table_writing(self, table: TableName, rows: int) -> None:
        with self._lock:
            progress = self._of(table)
            progress.phase, progress.rows = Phase.LOADING, rows

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        with self._lock:
            progress = self._of(table)
            progress.phase, progress.rows, progress.attempt = Phase.RETRYING, 0, progress.attempt + 1
        self.notice(retry_words(table, error, seconds))

    def table_finished(self, report: TableReport) -> None:
        with self._lock:
            progress = self._of(report.name)
            progress.phase = Phase.DONE if report.error is None else Phase.FAILED
            progress.rows, progress.seconds = report.rows, report.seconds
            self._ended.append(report.name)

    def notice(self, message: str) -> None:
        """Above the board, to stay."""
        self._console.print(Text(printable(message)), soft_wrap=True)

    def _of(self, table: TableName) -> Progress:
        return self._tables.setdefault(table, Progress(table, 0))

    def __rich__(self) -> Group:
        with self._lock:
            return self._draw() if self._tables else Group()

    def _draw(self) -> Group:
        now = self._clock()
        bars = self._console.width >= _NARROWEST_WITH_BAR
        everyone = len(self._tables)
        grid = _grid(bars, self._name_width(bars), len(f"{everyone} of {everyone}"))
        shown = self._shown(max(1, self._console.height - _OTHER_LINES))
        for progress in shown:
            grid.add_row(*_line(progress, now, bars))
        grid.add_row(*self._total(now, bars), style="bold")
        hidden = self._hidden(shown)
        return Group(grid, Text(f"… {hidden}", style="dim")) if hidden else Group(grid)

    def _name_width(self, bars: bool) -> int:
        """Enough for every name, shown or not, so that columns stay where they are; but there is an end."""
        longest = max((cell_len(printable(str(name))) for name in self._tables), default=0)
        others = _NUMBERS_WIDTH + (_BAR_WIDTH + 2 if bars else 0)
        return max(_LEAST_NAME, min(longest, self._console.width - others))

    def _shown(self, room: int) -> list[Progress]:
        """All tables if there is room, else those at work, the failed and the last done."""
        everyone = list(self._tables.values())
        if len(everyone) <= room:
            return everyone
        active = [progress for progress in everyone if progress.phase in ACTIVE]
        ended = [self._tables[name] for name in self._ended]
        failed = [progress for progress in reversed(ended) if progress.phase is Phase.FAILED]
        done = [progress for progress in reversed(ended) if progress.phase is Phase.DONE]
        chosen = {progress.name for progress in (active + failed + done[:_LAST_DONE])[:room]}
        return [progress for progress in ended + active if progress.name in chosen]

    def _hidden(self, shown: list[Progress]) -> str:
        visible = {progress.name for progress in shown}
        counts = dict.fromkeys((Phase.DONE, Phase.FAILED, *ACTIVE, Phase.WAITING), 0)
        for progress in self._tables.values():
            counts[progress.phase] += progress.name not in visible
        return ", ".join(f"{count:,} more {phase.word}" for phase, count in counts.items() if count)

    def _total(self, now: float, bars: bool) -> list[Text | ProgressBar]:
        everyone = self._tables.values()
        ended = sum(progress.phase in ENDED for progress in everyone)
        rows = sum(progress.rows for progress in everyone)
        expected = sum(progress.expected for progress in everyone)
        started = any(progress.phase is not Phase.WAITING for progress in everyone)
        elapsed = now - self._begun
        part = rows / expected if expected else ended / len(everyone)
        # Empty tables and late ones have no rows that would show in the bar: full is when all have ended.
        bar = [_bar(part if ended == len(everyone) else min(part, 0.99), "green")] if bars else []
        word = f"{ended} of {len(everyone)}"
        return [Text("total" if started else "starting Spark"), Text(word), *bar, *_numbers(rows, elapsed)]


def _grid(bars: bool, name_width: int, word_width: int) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("table", no_wrap=True, overflow="ellipsis", width=name_width)
    grid.add_column("", no_wrap=True, width=max(word_width, len("copying")))
    if bars:
        grid.add_column("", width=_BAR_WIDTH)
    grid.add_column("rows", justify="right", no_wrap=True, min_width=11)
    grid.add_column("rows/s", justify="right", no_wrap=True, min_width=9)
    grid.add_column("time", justify="right", no_wrap=True, min_width=7)
    return grid


def _line(progress: Progress, now: float, bars: bool) -> list[Text | ProgressBar]:
    word = f"retry {progress.attempt - 1}" if progress.phase is Phase.RETRYING else progress.phase.word
    part = progress.rows / progress.expected if progress.expected else float(progress.phase is Phase.DONE)
    waiting = progress.phase is Phase.WAITING
    barless = waiting or progress.phase is Phase.FAILED
    bar = Text() if barless else _bar(part, progress.phase.style, pulse=not progress.is_estimated)
    return [
        Text(printable(str(progress.name)), style="dim" if waiting else ""),
        Text(word, style=progress.phase.style),
        *([bar] if bars else []),
        *_numbers(progress.rows, progress.elapsed(now)),
    ]


def _bar(part: float, style: str, *, pulse: bool = False) -> ProgressBar:
    return ProgressBar(1.0, part, width=_BAR_WIDTH, pulse=pulse, complete_style=style, finished_style=style)


def _numbers(rows: int, elapsed: float | None) -> list[Text]:
    if elapsed is None:
        return [Text(), Text(), Text()]
    # A rate over less than a moment is noise.
    rate = f"{rows / elapsed:,.0f}" if rows and elapsed >= 0.1 else ""
    return [Text(f"{rows:,}"), Text(rate), Text(duration(elapsed))]


def clock(at: float) -> str:
    """A moment, in seconds since 1970, as people here say it; with the day when it is not today."""
    then = time.localtime(at)
    today = time.strftime("%Y-%m-%d") == time.strftime("%Y-%m-%d", then)
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)


def duration(seconds: float) -> str:
    """`0.8 s`, `59.9 s`, `1:02 min`, `1:02:03 h`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def retry_words(table: TableName, error: WalrelayError, seconds: float) -> str:
    if isinstance(error, CopyAgainError):
        return f"{error.message}; it is copied again"
    return f"{table}: {error.message}; trying again in {duration(seconds)}"


def failure_words(table: TableName, error: WalrelayError) -> str:
    hint = f"; what to do: {error.hint}" if error.hint else ""
    return f"{table}: failed: {error.message} ({error.code}){hint}"


def printable(text: str) -> str:
    """The text without control characters: names are the source's, and a terminal would obey them."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
