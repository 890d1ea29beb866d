"""What is shown of a run: the live board, the plain lines, the summary."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from walrelay.cli.progress import Board, duration, progress_display
from walrelay.cli.summary import show_summary
from walrelay.errors import ConnectionLostError, CopyAgainError, RightsError
from walrelay.model.names import TableName
from walrelay.model.special import Special
from walrelay.workers.report import Listener, RunSummary, TableReport

ORDERS, ITEMS = TableName("public", "orders"), TableName("public", "items")
LOST = ConnectionLostError("the connection was lost while copying")


class Stage:
    """A board on a terminal of our making, with a clock that we move."""

    def __init__(self, width: int = 110, height: int = 30) -> None:
        self.now = 0.0
        self.console = terminal(width, height)
        self.board = Board(self.console, clock=lambda: self.now)

    def lines(self) -> list[str]:
        drawn = Console(file=io.StringIO(), width=self.console.width, height=self.console.height)
        drawn.print(self.board)
        return [line.rstrip() for line in written(drawn).splitlines()]

    def line(self, start: str) -> list[str]:
        """The words of the line that begins so."""
        return next(line.split() for line in self.lines() if line.startswith(start))


def terminal(width: int = 110, height: int = 30) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, force_interactive=True, width=width, height=height, highlight=False
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def bar_of(words: list[str]) -> str:
    return next((word for word in words if set(word) <= set("━╸╺")), "")


def test_board_shows_phase_rows_rate_and_time_of_each_table() -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: 1000, ITEMS: 5000})
    stage.board.table_started(ITEMS, 1)
    stage.now = 2.0
    stage.board.table_progress(ITEMS, 2500)
    words = stage.line("public.items")
    assert words[1] == "copying"
    assert words[-4:] == ["2,500", "1,250", "2.0", "s"]
    assert stage.line("public.orders") == ["public.orders", "waiting"]
    assert stage.line("total")[1:4] == ["0", "of", "2"]
    assert stage.line("total")[-4:] == ["2,500", "1,250", "2.0", "s"]


def test_board_follows_a_table_from_copy_to_load_to_done() -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: 1000})
    stage.board.table_started(ORDERS, 1)
    stage.board.table_writing(ORDERS, 990)
    assert stage.line("public.orders")[1] == "loading"
    stage.now = 3.0
    stage.board.table_finished(TableReport(ORDERS, 990, 3.0))
    stage.now = 100.0
    assert stage.line("public.orders")[1] == "done"
    assert stage.line("public.orders")[-4:] == ["990", "330", "3.0", "s"]


@pytest.mark.parametrize("estimate", [0, 10, -1], ids=["unknown", "too-small", "never-analyzed"])
def test_bar_shows_no_measure_when_the_estimate_is_of_no_use(estimate: int) -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: estimate})
    stage.board.table_started(ORDERS, 1)
    stage.board.table_progress(ORDERS, 5000)
    assert len(bar_of(stage.line("public.orders"))) == 20
    assert "╸" not in bar_of(stage.line("public.orders"))
    assert len(bar_of(stage.line("total"))) == 20


def test_starting_is_said_until_the_first_table_starts() -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: 10})
    assert stage.line("starting Spark")
    stage.board.table_started(ORDERS, 1)
    assert stage.line("total")


def test_retry_is_counted_and_begins_from_no_rows() -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: 1000})
    stage.board.table_started(ORDERS, 1)
    stage.board.table_progress(ORDERS, 700)
    stage.board.table_retrying(ORDERS, LOST, 2.0)
    assert stage.line("public.orders")[1:3] == ["retry", "1"]
    assert "trying again in 2.0 s" in written(stage.console)
    stage.board.table_started(ORDERS, 2)
    stage.board.table_progress(ORDERS, 20)
    assert stage.line("public.orders")[1:3] == ["retry", "1"]
    assert "700" not in stage.line("public.orders")


def test_late_progress_does_not_change_a_table_that_has_ended() -> None:
    stage = Stage()
    stage.board.run_started({ORDERS: 1000})
    stage.board.table_started(ORDERS, 1)
    stage.board.table_finished(TableReport(ORDERS, 1000, 1.0))
    stage.board.table_progress(ORDERS, 900)
    assert "1,000" in stage.line("public.orders")


def many(stage: Stage, done: int, failed: int, active: int, waiting: int) -> None:
    names = [TableName("public", f"t{number}") for number in range(done + failed + active + waiting)]
    stage.board.run_started(dict.fromkeys(names, 100))
    for number, name in enumerate(names[: done + failed + active]):
        stage.board.table_started(name, 1)
        if number < failed:
            stage.board.table_finished(TableReport(name, 0, 1.0, error=RightsError("no")))
        elif number < failed + done:
            stage.board.table_finished(TableReport(name, 100, 1.0))


@pytest.mark.parametrize("height", [10, 24, 50])
def test_board_of_500_tables_fits_the_terminal(height: int) -> None:
    stage = Stage(height=height)
    many(stage, done=200, failed=2, active=4, waiting=294)
    lines = stage.lines()
    assert len(lines) < height
    shown = [line.split()[1] for line in lines if line.startswith("public.")]
    assert shown.count("copying") == 4
    assert shown.count("failed") == (2 if height > 10 else height - 8)
    assert stage.line("total")[1:4] == ["202", "of", "500"]
    hidden = {word: int(count) for count, _, word in (part.split() for part in lines[-1][2:].split(", "))}
    assert hidden["waiting"] == 294
    assert sum(hidden.values()) + len(shown) == 500


@pytest.mark.parametrize("width", [50, 79, 80, 200])
def test_lines_never_wrap(width: int) -> None:
    stage = Stage(width=width)
    stage.board.run_started({TableName("public", "x" * 300): 10, ORDERS: 123_456_789})
    stage.board.table_started(ORDERS, 1)
    stage.now = 4000.0
    stage.board.table_progress(ORDERS, 123_456_000)
    assert len(stage.lines()) == 4
    assert all(len(line) <= width for line in stage.lines())


def test_names_cannot_send_control_codes() -> None:
    stage = Stage()
    stage.board.run_started({TableName("public", "\x1b[2Jgone\n"): 10})
    assert not any("\x1b" in line for line in stage.lines())
    assert len(stage.lines()) == 3


def finish_two(listener: Listener) -> None:
    listener.run_started({ORDERS: 10, ITEMS: 10})
    listener.table_started(ORDERS, 1)
    listener.table_progress(ORDERS, 5)
    listener.notice("waiting for another run")
    listener.table_retrying(ORDERS, LOST, 1.0)
    listener.table_finished(TableReport(ORDERS, 1234, 2.0, attempts=2))
    listener.table_finished(TableReport(ITEMS, 0, 1.0, error=RightsError("not allowed")))


def test_a_table_that_is_copied_again_has_not_failed() -> None:
    console = Console(file=io.StringIO(), width=100)
    with progress_display(console) as listener:
        listener.table_retrying(ORDERS, CopyAgainError("public.orders was altered"), 0.0)
    assert written(console) == "public.orders was altered; it is copied again\n"


def test_without_a_terminal_there_is_one_line_a_table_and_the_notices() -> None:
    console = Console(file=io.StringIO(), width=40)
    with progress_display(console) as listener:
        finish_two(listener)
    assert written(console).splitlines() == [
        "waiting for another run",
        "public.orders: the connection was lost while copying; trying again in 1.0 s",
        "public.orders: 1,234 rows in 2.0 s, 617 rows/s",
        f"public.items: failed: not allowed (source.missing_rights); what to do: {RightsError.default_hint}",
    ]


def test_forced_colour_does_not_make_a_board_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_display() as listener:
        finish_two(listener)
    assert "\x1b" not in capsys.readouterr().err


def test_on_a_terminal_notices_stay_above_the_board() -> None:
    console = terminal()
    with progress_display(console) as listener:
        finish_two(listener)
    assert "waiting for another run" in written(console)
    assert "2 of 2" in written(console)


def test_listening_from_many_threads_while_drawing_loses_nothing() -> None:
    stage = Stage()
    names = [TableName("public", f"t{number}") for number in range(200)]
    stage.board.run_started(dict.fromkeys(names, 50))
    ended = threading.Event()

    def draw() -> int:
        frames = 0
        while not ended.is_set() or not frames:
            stage.lines()
            frames += 1
        return frames

    def copy(name: TableName) -> None:
        stage.board.table_started(name, 1)
        for rows in range(0, 50, 10):
            stage.board.table_progress(name, rows)
        stage.board.table_writing(name, 50)
        stage.board.table_finished(TableReport(name, 50, 1.0))

    with ThreadPoolExecutor(9) as pool:
        drawing = pool.submit(draw)
        list(pool.map(copy, names))
        ended.set()
        assert drawing.result() > 0
    assert stage.line("total")[1:4] == ["200", "of", "200"]
    assert "10,000" in stage.line("total")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.9, "59.9 s"), (59.97, "1:00 min"), (61.4, "1:01 min"), (3725, "1:02:05 h")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def summary_of(*reports: TableReport) -> str:
    console = Console(file=io.StringIO(), width=60)
    show_summary(RunSummary(reports, 2.0), console)
    return written(console)


def test_summary_counts_tables_rows_and_values_treated_by_policy() -> None:
    treated = Counter({Special.NUMERIC_NAN: 1200, Special.DATE_INFINITY: 3})
    said = summary_of(TableReport(ORDERS, 1_000_000, 2.0, treated=treated), TableReport(ITEMS, 500_000, 1.0))
    assert "2 tables, 1,500,000 rows in 2.0 s, 750,000 rows/s" in said
    assert "1,200  numeric NaN" in said
    assert "3  date ±infinity" in said


@pytest.mark.parametrize("word", ["source.missing_rights", "not [allowed]", "what to do: GRANT", "after 3 attempts"])
def test_summary_says_of_a_failed_table_why_and_what_to_do(word: str) -> None:
    error = RightsError("not [allowed]", hint="GRANT SELECT ON orders TO you;")
    said = summary_of(TableReport(ORDERS, 0, 2.0, attempts=3, error=error), TableReport(ITEMS, 5, 1.0))
    assert "1 of 2 tables, 5 rows" in said
    assert "1 failed" in said
    assert word in said


_: Callable[[Console], Listener] = Board  # a board is a listener; the type checker looks
