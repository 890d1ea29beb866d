"""The board of tables: phases follow each other as the table says, failures have a next attempt, and what it hands out
never changes in a reader's hands."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from walrelay.changes.batch import TableRange
from walrelay.errors import (
    ConnectionLostError,
    CopyAgainError,
    PhaseOrderError,
    RightsError,
    SpecialValueError,
    UnsentValueError,
    WalrelayError,
)
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    LateRetry,
    NoRetry,
    Ready,
    SyncDone,
    SyncWait,
)
from walrelay.stores.memory import MemoryStore
from walrelay.workers.board import RetryRule, TableBoard

ORDERS = TableName("public", "orders")


class Heard:
    def __init__(self) -> None:
        self.failed: list[tuple[str, float | None, bool]] = []
        self.recovered: list[str] = []

    def fail(self, name: TableName, error: WalrelayError, delay: float | None, given_up: bool) -> None:
        self.failed.append((error.code, delay, given_up))


def board_with(heard: Heard, *, retries: int = 1, delay: float = 0.0) -> TableBoard:
    rule = RetryRule(retries, timedelta(seconds=delay), timedelta(seconds=0))
    board = TableBoard(MemoryStore(), rule, heard.fail, lambda name: heard.recovered.append(str(name)))
    board.found({1: ORDERS})
    board.set(1, Init())
    return board


def ready(board: TableBoard) -> None:
    for phase in (DataSync(), FinishedCopy(), SyncWait(), Catchup(Lsn(5)), SyncDone(Lsn(6))):
        board.set(1, phase)
    board.taken_over([1], Lsn(7))


def test_a_step_that_may_not_follow_is_refused_and_changes_nothing() -> None:
    board = board_with(Heard())
    with pytest.raises(PhaseOrderError, match=r"public\.orders cannot go from init to ready"):
        board.set(1, Ready())
    board.found({2: TableName("public", "items")})
    with pytest.raises(PhaseOrderError):
        board.set_all({2: Init(), 1: FinishedCopy()})
    assert board.phases() == {1: Init()}


def test_a_cause_that_may_be_gone_is_tried_again_late_and_nobody_waits_for_it() -> None:
    heard = Heard()
    board = board_with(heard)
    ready(board)
    board.failed(1, RightsError("no SELECT on public.orders", hint="GRANT SELECT"))
    phase = board.phase(1)
    assert isinstance(phase, Errored) and isinstance(phase.retry_policy, LateRetry) and phase.is_given_up
    assert (phase.code, phase.retry_at is not None) == ("source.missing_rights", True)
    assert heard.failed == [("source.missing_rights", 0.0, True)]
    assert board.due_retries() == [1] and board.phase(1) == Ready()
    board.succeeded(1)
    assert heard.recovered == ["public.orders"]


def test_what_time_heals_is_tried_so_often_and_then_late() -> None:
    heard = Heard()
    board = board_with(heard, retries=2)
    for _ in range(3):
        board.failed(1, ConnectionLostError("gone"))
        board.due_retries()
    assert [given_up for _, _, given_up in heard.failed] == [False, False, True]


def test_what_only_a_person_can_help_waits_for_the_next_start() -> None:
    board = board_with(Heard())
    board.failed(1, SpecialValueError("NaN"))
    phase = board.phase(1)
    assert isinstance(phase, Errored) and isinstance(phase.retry_policy, NoRetry)
    assert board.due_retries() == []
    board.resume_retries()
    assert board.due_retries() == [1] and board.phase(1) == Init()


def test_a_table_that_the_log_cannot_bring_further_begins_anew() -> None:
    heard = Heard()
    board = board_with(heard)
    ready(board)
    board.failed(1, CopyAgainError("altered"))
    assert (
        board.phase(1) == Init() and board.positions == {} and heard.failed == [("destination.copy_again", 0.0, False)]
    )
    ready(board)
    board.failed(1, UnsentValueError("never had"))
    board.resume_retries()
    board.due_retries()
    assert board.phase(1) == Init(), "whoever tries it again copies it"


def test_a_retry_that_was_planned_is_off_when_the_table_begins_anew() -> None:
    board = board_with(Heard())
    ready(board)
    board.failed(1, ConnectionLostError("gone"))
    assert isinstance(board.phase(1), Errored)
    board.begin_anew(1)
    assert board.due_retries() == [] and board.phase(1) == Init()


def test_who_waits_for_a_catch_up_learns_that_there_will_be_none() -> None:
    board = board_with(Heard())
    for phase in (DataSync(), FinishedCopy(), SyncWait()):
        board.set(1, phase)
    found: list[Lsn | None] = []
    waiting = threading.Thread(target=lambda: found.append(board.wait_for_catchup(1, threading.Event())))
    waiting.start()
    board.begin_anew(1)
    waiting.join(60)
    assert found == [None]


def test_what_is_handed_out_never_changes() -> None:
    board = board_with(Heard())
    ready(board)
    names, positions = board.names, board.positions
    stop, failures = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                for table in board.positions:
                    assert board.positions[table] >= Lsn(7)
                board.ranges(Lsn(10_000))
                list(board.names.items())
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 400):
        board.found({number: TableName("public", f"t{number}")})
        board.place(number, Lsn(7 + number))
        board.moved((TableRange(1, Lsn(7)),), Lsn(7 + number))
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert (dict(names), dict(positions)) == ({1: ORDERS}, {1: Lsn(7)})
    assert board.positions[1] == Lsn(406)


def test_a_table_that_was_given_up_holds_nothing_back() -> None:
    board = board_with(Heard(), retries=0)
    ready(board)
    assert board.oldest_needed(Lsn(50)) == Lsn(7)
    board.failed(1, RightsError("no SELECT"))
    assert board.oldest_needed(Lsn(50)) == Lsn(50)
