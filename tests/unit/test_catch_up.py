"""Tables that catch up: in pieces, with those who come meanwhile, and to an end."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.errors import WalrelayError
from walrelay.log.manifest import DataFile, Entry, data_path
from walrelay.log.reader import LogReader
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.workers import catch_up
from walrelay.workers.catch_up import CatchUps

PIECE = 100
LARGE, SMALL = 7, 8
Write = tuple[int, int, frozenset[int]]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(catch_up, "SEEN_BYTES", PIECE)


class Log(LogView):
    """Segments of 10 LSNs, each one transaction with 50 bytes of the large table and one of the small."""

    def __init__(self, segments: int) -> None:
        super().__init__(Path("nowhere"))
        self._segments: list[Entry] = []
        self.grow(segments)

    def grow(self, segments: int) -> None:
        for number in range(len(self._segments) + 1, len(self._segments) + segments + 1):
            start, end = Lsn(number * 10), Lsn(number * 10 + 10)
            files = tuple(
                DataFile(data_path(number, number, 1, table, 1), table, "t", 1, 1, size, Lsn(start + 1), end)
                for table, size in ((LARGE, 50), (SMALL, 1))
            )
            self._segments.append(Entry(number, number, start, end, 1, 2, 51, 0, 0.0, files))

    def start(self) -> Lsn:
        return self._segments[0].start_lsn

    def end(self) -> Lsn:
        return self._segments[-1].end_lsn

    def entries(self, after: Lsn | None = None, to: Lsn | None = None) -> list[Entry]:
        assert after is not None and to is not None
        return [one for one in self._segments if one.end_lsn > after and one.start_lsn < to]


class Writes:
    """A destination that keeps what it was told, and lets the test act within each write."""

    def __init__(self) -> None:
        self.seen: list[Write] = []

    def during(self, write: Write) -> None:
        """For tests."""

    def write_events(self, batch: Any) -> None:
        after, end, ranges = batch
        assert all(one.after == after for one in ranges)
        write = (int(after), int(end), frozenset(one.table for one in ranges))
        self.during(write)
        self.seen.append(write)

    def of(self, table: int) -> list[tuple[int, int]]:
        return [(after, end) for after, end, tables in self.seen if table in tables]


def made(log: Log, writes: Writes, stopping: threading.Event | None = None) -> CatchUps:
    def batch(after: Lsn, end: Lsn, ranges: tuple[TableRange, ...]) -> EventBatch:
        return cast("EventBatch", (after, end, ranges))

    reader = cast("LogReader", log)
    return CatchUps(writes.write_events, reader, batch, stopping or threading.Event())


def assert_one_after_the_other(pieces: list[tuple[int, int]], start: int, end: int) -> None:
    assert pieces[0][0] == start and pieces[-1][1] == end
    assert all(before[1] == following[0] for before, following in itertools.pairwise(pieces))


def test_a_long_way_goes_in_pieces() -> None:
    log, writes = Log(10), Writes()
    assert made(log, writes).catch_up(LARGE, "", log.end(), log.start()) == log.end()
    assert_one_after_the_other(writes.of(LARGE), 10, 110)
    assert len(writes.seen) == 5


def test_what_is_in_the_copy_by_its_position_is_not_sent() -> None:
    log, writes = Log(10), Writes()
    assert made(log, writes).catch_up(LARGE, None, log.end(), log.start(), Lsn(55)) == log.end()
    assert_one_after_the_other(writes.of(LARGE), 55, 110)


@pytest.mark.parametrize("start", [110, 111, 500])
def test_a_copy_that_holds_all_of_the_log_is_told_where_it_is(start: int) -> None:
    log, writes = Log(10), Writes()
    assert made(log, writes).catch_up(LARGE, None, log.end(), log.start(), Lsn(start)) == log.end()
    assert writes.seen == [(110, 110, frozenset({LARGE}))]


def test_tables_with_different_starts_go_together_each_from_its_own() -> None:
    log, writes = Log(10), Writes()
    catch_ups = made(log, writes)
    starts: list[tuple[int, int, int]] = []
    writes.write_events = lambda batch: starts.extend(  # type: ignore[method-assign]
        (one.table, int(one.after), int(batch[1])) for one in batch[2]
    )
    catch_ups._send = writes.write_events
    one, other = (catch_up._Request(t, None, log.end(), log.start()) for t in (LARGE, SMALL))
    one.after, other.after = Lsn(10), Lsn(75)
    catch_ups._write([one, other])
    assert one.reached == other.reached == log.end()
    assert_one_after_the_other([(after, end) for table, after, end in starts if table == LARGE], 10, 110)
    small = [(after, end) for table, after, end in starts if table == SMALL and end > after]
    assert_one_after_the_other(small, 75, 110)


def test_it_ends_also_when_more_comes_with_each_write_than_a_piece_holds() -> None:
    log, writes = Log(10), Writes()

    def three_more(write: Write) -> None:
        assert len(writes.seen) < 100, "it never ends"
        log.grow(3)

    writes.during = three_more  # type: ignore[method-assign]
    reached = made(log, writes).catch_up(LARGE, "", log.end(), log.start())
    assert reached is not None
    assert_one_after_the_other(writes.of(LARGE), 10, int(reached))
    assert len(writes.seen) < 30


def test_a_small_table_does_not_wait_for_the_end_of_a_large_one() -> None:
    log, writes = Log(100), Writes()
    catch_ups = made(log, writes)
    with ThreadPoolExecutor() as threads:
        small = []

        def somebody_comes(write: Write) -> None:
            if len(writes.seen) == 3:
                small.append(threads.submit(catch_ups.catch_up, SMALL, "", log.end(), log.start()))
                while not catch_ups._writing.is_wanted:
                    pass

        writes.during = somebody_comes  # type: ignore[method-assign]
        catch_ups.catch_up(LARGE, "", log.end(), log.start())
        assert small[0].result() == log.end()
    place = next(number for number, write in enumerate(writes.seen) if write[2] == {SMALL})
    assert place < 10, "between two pieces of the large one"
    assert len(writes.of(LARGE)) == 50


def test_whoever_comes_during_a_write_goes_with_the_others() -> None:
    log, writes = Log(1), Writes()
    catch_ups = made(log, writes)
    with ThreadPoolExecutor() as threads:
        later = []

        def two_come(write: Write) -> None:
            if not writes.seen:
                later.extend(threads.submit(catch_ups.catch_up, one, "", log.end(), log.start()) for one in (8, 9))
                while len(catch_ups._pending) < 2 or not catch_ups._writing.is_wanted:
                    pass

        writes.during = two_come  # type: ignore[method-assign]
        catch_ups.catch_up(LARGE, "", log.end(), log.start())
        assert [one.result() for one in later] == [log.end(), log.end()]
    assert [tables for _, _, tables in writes.seen] == [{LARGE}, {8, 9}]


class RefusedError(WalrelayError):
    code = "test.refused"


@pytest.mark.parametrize("error", [RefusedError("no"), ValueError("a fault of the program")])
def test_a_failure_reaches_its_table_and_the_others_go_on_from_where_they_were(error: Exception) -> None:
    log, writes = Log(10), Writes()
    catch_ups = made(log, writes)
    with ThreadPoolExecutor() as threads:
        later = {}

        def fail(write: Write) -> None:
            after, _, tables = write
            if not writes.seen:
                for one in (LARGE, SMALL):
                    later[one] = threads.submit(catch_ups.catch_up, one, "", log.end(), log.start())
                while len(catch_ups._pending) < 2 or not catch_ups._writing.is_wanted:
                    pass
            elif SMALL in tables and after > 50:
                raise error

        writes.during = fail  # type: ignore[method-assign]
        catch_ups.catch_up(9, "", log.end(), log.start())
        assert later[SMALL].exception() is error
        if isinstance(error, WalrelayError):
            assert later[LARGE].result() == log.end()
            assert_one_after_the_other(writes.of(LARGE), 10, 110)
        else:
            assert later[LARGE].exception() is error, "nobody knows whose it is"


def test_it_is_given_up_between_two_pieces_when_the_pipeline_stops() -> None:
    log, writes, stopping = Log(10), Writes(), threading.Event()
    writes.during = lambda write: stopping.set()  # type: ignore[method-assign]
    assert made(log, writes, stopping).catch_up(LARGE, "", log.end(), log.start()) is None
    assert len(writes.seen) == 1
