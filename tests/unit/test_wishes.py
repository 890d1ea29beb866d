"""What a person asks of a pipeline waits in its store until somebody who runs the pipeline does it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from walrelay.control.commands import pause, resume, resync, rollback
from walrelay.errors import ConfigError, UnknownTableError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import Catchup, DataSync, FinishedCopy, Init, SyncDone, SyncWait
from walrelay.stores.failures import NoEarlierPhaseError
from walrelay.stores.memory import MemoryStore
from walrelay.workers.board import RetryRule, TableBoard
from walrelay.workers.commands import CommandDesk

NAMES = {1: TableName("public", "orders"), 2: TableName("public", "items"), 3: TableName("old", "items")}


class Shop:
    """Three tables that are ready, their board, and a desk at which somebody looks."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.heard: list[str] = []
        self.board = TableBoard(self.store, RetryRule(0, timedelta(0)), lambda *_: None)
        self.board.found(NAMES)
        self.store.store_table_mappings({table: str(name) for table, name in NAMES.items()})
        for phase in (Init(), DataSync(), FinishedCopy(), SyncWait(), Catchup(Lsn(5)), SyncDone(Lsn(5))):
            self.board.set_all(dict.fromkeys(NAMES, phase))
        self.board.taken_over(NAMES, Lsn(9))

    def look(self, busy: int | None = None) -> CommandDesk:
        desk = CommandDesk(self.store, self.heard.append)
        desk.look(self.board, lambda table: table == busy)
        return desk


def test_a_table_is_copied_again_once() -> None:
    shop = Shop()
    (asked,) = resync(shop.store, ["orders"])
    assert (asked.table, asked.phase, asked.running) == ("public.orders", "ready", False)
    shop.look()
    assert shop.board.phase(1) == Init() and shop.board.positions == {2: Lsn(9), 3: Lsn(9)}
    assert shop.heard == ["public.orders is copied again: it was asked for"]
    shop.board.set(1, DataSync())
    shop.look()
    assert shop.board.phase(1) == DataSync(), "what was done is not asked for any more"


def test_all_tables_are_copied_again() -> None:
    shop = Shop()
    assert len(resync(shop.store)) == 3
    shop.look()
    assert set(shop.board.phases().values()) == {Init()}


def test_a_table_that_a_worker_has_waits_for_its_turn() -> None:
    shop = Shop()
    resync(shop.store, ["public.orders"])
    shop.look(busy=1)
    assert shop.board.positions[1] == Lsn(9)
    shop.look()
    assert shop.board.phase(1) == Init()


def test_a_table_goes_one_phase_back() -> None:
    shop = Shop()
    assert rollback(shop.store, "public.orders").phase == "ready"
    shop.look()
    assert shop.board.phase(1) == SyncDone(Lsn(5)) and 1 not in shop.board.positions
    shop.board.begin_anew(1)
    with pytest.raises(NoEarlierPhaseError):
        rollback(shop.store, "public.orders")


def test_a_pause_holds_until_it_is_ended() -> None:
    shop = Shop()
    assert not shop.look().is_paused
    pause(shop.store)
    desk = shop.look()
    assert desk.is_paused and "paused" in shop.heard[-1]
    resume(shop.store)
    assert not shop.look().is_paused


def test_names_that_fit_none_or_several_are_refused_with_those_that_there_are() -> None:
    shop = Shop()
    with pytest.raises(UnknownTableError) as caught:
        resync(shop.store, ["nowhere"])
    assert "public.orders" in caught.value.hint
    with pytest.raises(ConfigError) as clash:
        resync(shop.store, ["items"])
    assert "old.items, public.items" in clash.value.hint
