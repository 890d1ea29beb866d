"""Changes on their way to the destination: their shapes are in the store first, and only what is durable counts."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.destinations.base import Destination, SimpleDestination, WriteResult
from walrelay.errors import NotDurableError
from walrelay.log.manifest import DataFile, Entry, data_path
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.stores.memory import MemoryStore
from walrelay.stores.records import SchemaSnapshot
from walrelay.workers.event_writer import EventWriter

TABLE, OTHER = 7, 8


def shape(table: int, *columns: str) -> TableSchema:
    return TableSchema(
        table, TableName("public", f"t{table}"), tuple(Column(one, PgType(23, "int4")) for one in columns)
    )


class Log(LogReader):
    """A segment per version of the table: version n has n columns and holds from 100 n on. The other has one shape."""

    def __init__(self, segments: int) -> None:
        super().__init__(Path("nowhere"))
        self.first, self.last = 1, segments

    def start(self) -> Lsn:
        return Lsn(100 * self.first)

    def entries(self, after: Lsn | None = None, to: Lsn | None = None) -> list[Entry]:
        assert after is not None and to is not None
        found = (self._entry(number) for number in range(self.first, self.last + 1))
        return [one for one in found if one.end_lsn > after and one.start_lsn < to]

    def _entry(self, number: int) -> Entry:
        start, end = Lsn(100 * number), Lsn(100 * number + 100)
        files = tuple(
            DataFile(data_path(number, number, 1, table, version), table, "t", version, 1, 1, Lsn(start + 1), end)
            for table, version in ((TABLE, number), (OTHER, 1))
        )
        return Entry(number, number, start, end, 1, 2, 2, 0, 0.0, files)

    def version(self, table: int, version: int) -> SchemaVersion:
        names = [f"c{number}" for number in range(version)]
        return SchemaVersion(shape(table, *names), version, Lsn(100 * version))


class Asking(SimpleDestination):
    """Looks in the store, as a destination may, and answers as it was told."""

    name = "asking"

    def __init__(self, store: MemoryStore) -> None:
        self.durable = True
        self.seen: list[int] = []
        self._store = store

    def write_events(self, batch: EventBatch) -> WriteResult:
        known = self._store.get_table_schema(TABLE, batch.to)
        self.seen.append(len(known.schema.columns) if known is not None else 0)
        return WriteResult(durable=self.durable)


class Counting(MemoryStore):
    stored = 0

    def store_table_schema(self, schema: TableSchema, snapshot_lsn: Lsn) -> SchemaSnapshot:
        self.stored += 1
        return super().store_table_schema(schema, snapshot_lsn)


def made(log: Log) -> tuple[EventWriter, Counting, Asking]:
    store = Counting()
    destination = Asking(store)
    return EventWriter(log, cast("Destination", destination), store), store, destination


def batch(log: Log, after: int, to: int, *tables: int) -> EventBatch:
    ranges = tuple(TableRange(table, Lsn(after)) for table in tables) or None
    return EventBatch(log, Lsn(after), Lsn(to), ranges)


def lsns(store: MemoryStore, table: int) -> list[int]:
    return [int(one.snapshot_lsn) for one in store.get_table_schemas() if one.schema.id == table]


def test_the_shapes_are_in_the_store_before_the_changes_are_at_the_destination() -> None:
    log = Log(3)
    writer, store, destination = made(log)
    writer.write(batch(log, 100, 200))
    writer.write(batch(log, 200, 400))
    assert destination.seen == [1, 3]
    assert lsns(store, TABLE) == [100, 200, 300] and lsns(store, OTHER) == [100]


def test_tables_that_take_no_part_are_left_alone() -> None:
    log = Log(2)
    writer, store, _ = made(log)
    writer.write(batch(log, 100, 300, TABLE))
    assert lsns(store, TABLE) == [100, 200] and lsns(store, OTHER) == []


def test_a_shape_that_is_known_is_not_stored_again() -> None:
    log = Log(1)
    writer, store, _ = made(log)
    store.store_table_schema(shape(TABLE, "c0"), Lsn(50))  # by the copy
    for _ in range(3):
        writer.write(batch(log, 100, 200, TABLE))
    assert store.stored == 1 and lsns(store, TABLE) == [50]


def test_shapes_that_the_log_can_no_longer_bring_go() -> None:
    log = Log(2)
    writer, store, _ = made(log)
    writer.write(batch(log, 100, 300, TABLE))
    log.first, log.last = 3, 4
    writer.write(batch(log, 300, 500, TABLE))
    assert lsns(store, TABLE) == [300, 400]


def test_what_is_only_accepted_is_an_error_that_time_may_heal() -> None:
    log = Log(1)
    writer, _, destination = made(log)
    destination.durable = False
    with pytest.raises(NotDurableError, match="the changes up to 0/C8 but did not make that durable") as caught:
        writer.write(batch(log, 100, 200))
    assert caught.value.retryable
