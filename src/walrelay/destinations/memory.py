"""Tables kept in memory: for tests and small scripts."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import SimpleDestination, TableRows, WriteResult
from walrelay.destinations.events import EventBatch
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema


class MemoryDestination(SimpleDestination):
    """Arrow tables by name: `destination.tables["public.orders"]`, or plain rows with `rows("public.orders")`.
    Changes, in commit order and each once, are in `destination.changes`."""

    name = "memory"
    takes_events = True
    materializes = True

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._applied: Lsn | None = None
        self.tables: dict[str, pa.Table] = {}
        self.schemas: dict[str, TableSchema] = {}
        self._lock = threading.Lock()

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        table = rows.arrow()
        with self._lock:
            self.tables[str(schema.name)] = table
            self.schemas[str(schema.name)] = schema
        return WriteResult(durable=True, rows=table.num_rows)

    def write_events(self, batch: EventBatch) -> WriteResult:
        with self._lock:
            after = batch.after if self._applied is None else max(batch.after, self._applied)
            fresh = list(batch.log.changes(after, batch.to))
            self.changes += fresh
            self._applied = batch.to
        return WriteResult(durable=True, rows=len(fresh))

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return self._applied

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as dictionaries."""
        return [row for batch in self.tables[table].to_batches() for row in plain_rows(batch)]
