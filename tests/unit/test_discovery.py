"""Where known tables go on is decided while others move them on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_board import Heard, board_with
from walrelay.destinations.capabilities import Capabilities
from walrelay.model.lsn import Lsn
from walrelay.model.phases import Catchup, DataSync, FinishedCopy, Ready, SyncDone, SyncWait
from walrelay.stores.memory import MemoryStore
from walrelay.workers.board import TableBoard
from walrelay.workers.discovery import Discovery


def caught_up(board: TableBoard) -> None:
    for phase in (DataSync(), FinishedCopy(), SyncWait(), Catchup(Lsn(5)), SyncDone(Lsn(6))):
        board.set(1, phase)


def discovery(board: TableBoard, applied: Callable[[int], Lsn | None]) -> Discovery:
    log: Any = SimpleNamespace(start=lambda: Lsn(1), head=lambda: Lsn(100))
    parts: Any = SimpleNamespace(
        log=log,
        store=MemoryStore(),
        source_lsn=Lsn(100),
        destination=SimpleNamespace(applied_lsn=applied, capabilities=Capabilities(kind="tables")),
        listener=SimpleNamespace(notice=lambda _: None),
    )
    watch: Any = SimpleNamespace()
    return Discovery(parts, board, watch, Lsn(1))


@pytest.mark.parametrize("own", [Lsn(7), None])
def test_a_table_that_is_taken_over_meanwhile_is_left_alone(own: Lsn | None) -> None:
    """The destination is asked in between, which may take as long as it writes."""
    board = board_with(Heard())
    caught_up(board)

    def asked(_: int) -> Lsn | None:
        board.taken_over([1], Lsn(50))
        return own

    discovery(board, asked).place()
    assert board.phase(1) == Ready() and board.positions == {1: Lsn(50)}


def test_a_table_goes_on_where_the_destination_says() -> None:
    board = board_with(Heard())
    caught_up(board)
    discovery(board, lambda _: Lsn(7)).place()
    assert board.phase(1) == SyncDone(Lsn(7)) and board.positions == {}
    board.set(1, Ready())
    discovery(board, lambda _: Lsn(9)).place()
    assert board.positions == {1: Lsn(9)}
