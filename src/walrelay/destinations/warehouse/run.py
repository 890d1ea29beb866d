"""A warehouse while it is written to: several tables side by side, each by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.lake.failures import naming
from walrelay.destinations.lake.sessions import Sessions
from walrelay.destinations.staging import RunDirectory, staging_failure, temporary_root
from walrelay.destinations.warehouse.apply import TableWriter, Taken
from walrelay.destinations.warehouse.names import stage_prefix
from walrelay.destinations.warehouse.positions import Positions
from walrelay.destinations.warehouse.service import Warehouse
from walrelay.destinations.warehouse.tables import Tables
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")
SIDE_BY_SIDE = 4
"""Tables that are written at the same time."""
SETTINGS = {"spark.sql.parquet.compression.codec": "zstd"}
"""What is sent over a network is worth the time."""


class WarehouseRun:
    def __init__(self, warehouse: Warehouse, context: DestinationContext) -> None:
        self._warehouse = warehouse
        self._context = context
        warehouse.sweep(stage_prefix(context.pipeline_name or context.pipeline_id))
        self._sessions = Sessions(context, SETTINGS)
        self._tables = Tables(warehouse, context)
        self._positions = Positions(context.store)
        root = temporary_root(context.settings.staging)
        try:
            self._directory = RunDirectory(root)
        except OSError as error:
            raise staging_failure(error, root) from error
        self._writer = TableWriter(warehouse, self._tables, context, self._directory.path)
        self._alone: dict[TableId, threading.Lock] = {}

    def close(self) -> None:
        self._directory.remove()

    @contextmanager
    def _writing(self, table: TableId, name: object, doing: str) -> Iterator[SparkSession]:
        with (
            self._alone.setdefault(table, threading.Lock()),
            self._sessions.session(f"{doing} {name}") as spark,
            naming(table, name, doing),
        ):
            yield spark

    # ---------------------------------------------------------------------------------------------------------- copies

    def forget(self, schema: TableSchema) -> None:
        with self._alone.setdefault(schema.id, threading.Lock()), naming(schema.id, schema.name, "preparing"):
            self._tables.refuse(schema, copying=True)
            self._positions.forget(schema.id)
            self._tables.forget(schema.id)

    def replace(self, schema: TableSchema, rows: TableRows) -> Taken:
        with self._writing(schema.id, schema.name, "copying") as spark:
            return self._writer.replace(spark, schema, rows)

    # --------------------------------------------------------------------------------------------------------- changes

    def take_all(self, batch: EventBatch) -> list[tuple[TableId, Taken]]:
        """Every table's changes, several side by side, and shapes that no change has shown."""
        parts = batch.tables()
        work: list[Callable[[], Taken]] = [partial(self._take, batch, part) for part in parts]
        work += [partial(self._show, shown) for shown in batch.shapes]
        done = _side_by_side(work)
        own = {one.table: said for one in batch.ranges or () if (said := self._own_word(one.table)) is not None}
        self._positions.record({table: said for table, said in own.items() if said < batch.to}, batch.to)
        return [(part.schema.id, one) for part, one in zip(parts, done, strict=False)]

    def _take(self, batch: EventBatch, part: TableChanges) -> Taken:
        with self._writing(part.schema.id, part.schema.name, f"applying changes up to {part.to} to") as spark:
            return self._writer.take(spark, batch.log.storage, part)

    def _show(self, version: SchemaVersion) -> Taken:
        with (
            self._alone.setdefault(version.schema.id, threading.Lock()),
            naming(version.schema.id, version.schema.name, "altering"),
        ):
            self._writer.follow([version])
        return Taken()

    # ------------------------------------------------------------------------------------------------------- positions

    def applied(self, table: TableId) -> Lsn | None:
        own = self._own_word(table)
        return None if own is None else self._positions.reached(table, own)

    def _own_word(self, table: TableId) -> Lsn | None:
        """What the table itself says; 0 after a copy, None when it is not there or to be copied."""
        kept = self._tables.kept(table)
        return None if kept is None else kept.applied


def _side_by_side(work: list[Callable[[], R]]) -> list[R]:
    """All of it, also when some fails; then what failed first is raised."""
    if len(work) == 1:
        return [work[0]()]
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="walrelay-warehouse") as pool:
        futures: list[Future[R]] = [pool.submit(one) for one in work]
    return [one.result() for one in futures]
