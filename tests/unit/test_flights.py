"""Batches that a destination has only accepted: progress waits for them, in order, and what fails comes again."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.histories import INT4, TEXT, SmallLog
from walrelay.changes.batch import EventBatch
from walrelay.destinations.base import WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.memory import MemoryDestination
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, TableSchema
from walrelay.stores.memory import MemoryStore
from walrelay.testing.faults import PassingFaultError
from walrelay.workers.apply import ApplyWorker
from walrelay.workers.event_writer import EventWriter

TABLE = TableSchema(
    1, TableName("public", "t"), (Column("id", INT4, attnum=1), Column("v", TEXT, attnum=2)), ("id",), identity="full"
)


class Slow(MemoryDestination):
    """Takes what it is given when the test says so."""

    capabilities = Capabilities(kind="tables", takes_changes=True, keeps_progress=True, in_flight=3)

    def __init__(self) -> None:
        super().__init__()
        self.flying: list[tuple[EventBatch, Future[WriteResult]]] = []

    def write_events(self, batch: EventBatch) -> WriteResult:
        later: Future[WriteResult] = Future()
        self.flying.append((batch, later))
        return WriteResult.accepted(later)

    def take_next(self) -> None:
        batch, later = self.flying.pop(0)
        later.set_result(super().write_events(batch))

    def lose_next(self) -> None:
        self.flying.pop(0)[1].set_exception(PassingFaultError("lost on its way"))

    @property
    def ranges(self) -> list[tuple[Lsn, Lsn]]:
        return [(batch.after, batch.to) for batch, _ in self.flying]


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    made = SmallLog(tmp_path / "log")
    for number in range(1, 6):
        made.commit([(TABLE, 1, {"op": "insert", "row": {"id": number, "v": str(number)}})])
        made.close_segment()
    return made


def worker_of(log: SmallLog, destination: Slow, store: MemoryStore) -> ApplyWorker:
    reader = log.batch().log
    address: Any = type("Address", (), {"location": "", "format": staticmethod(lambda: "walrelay")})
    return ApplyWorker(
        reader,
        address,
        destination,
        EventWriter(reader, destination, store),
        store,
        Lineage("p", "s", 1, Lsn(1)),
        reader="r",
        board=None,
        spark=None,
        stopping=threading.Event(),
        is_paused=lambda: False,
        notify=lambda _: None,
    )


def test_progress_waits_for_what_flies_and_goes_in_order(log: SmallLog) -> None:
    destination = Slow()
    worker = worker_of(log, destination, MemoryStore())
    for end in log.ends[:3]:
        worker.take(end)
    assert destination.ranges == [(log.start, log.ends[0]), *zip(log.ends, log.ends[1:3], strict=False)]
    assert worker.position == log.start, "nothing is durable yet"
    destination.take_next()
    worker.tick()
    assert worker.position == log.ends[0]
    destination.take_next()
    destination.take_next()
    worker.take(log.ends[3])
    assert worker.position == log.ends[2] and destination.ranges == [(log.ends[2], log.ends[3])]
    destination.take_next()
    worker.tick()
    assert (worker.position, worker.rows) == (log.ends[3], 4)
    assert [row["id"] for row in destination.rows("public.t")] == [1, 2, 3, 4]


def test_no_more_fly_than_the_destination_allows(log: SmallLog) -> None:
    destination = Slow()
    worker = worker_of(log, destination, MemoryStore())
    for end in log.ends[:3]:
        worker.take(end)
    fourth = threading.Thread(target=worker.take, args=(log.ends[3],))
    fourth.start()
    fourth.join(0.2)
    assert fourth.is_alive() and len(destination.flying) == 3
    destination.take_next()
    fourth.join(60)
    assert not fourth.is_alive() and worker.position == log.ends[0] and len(destination.flying) == 3


def test_what_is_lost_on_its_way_comes_again_and_nothing_twice(log: SmallLog) -> None:
    destination = Slow()
    worker = worker_of(log, destination, MemoryStore())
    for end in log.ends[:3]:
        worker.take(end)
    destination.take_next()
    destination.lose_next()
    destination.lose_next()  # it builds on the one before
    worker.tick()
    assert worker.position == log.ends[0]
    assert destination.ranges == [(log.ends[0], log.ends[2])]
    destination.take_next()
    worker.tick()
    assert worker.position == log.ends[2]
    assert [row["id"] for row in destination.rows("public.t")] == [1, 2, 3]
