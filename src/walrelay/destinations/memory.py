"""Tables kept in memory: for tests and small scripts."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from walrelay.destinations.base import SimpleDestination, TableRows, WriteResult
from walrelay.destinations.plain_rows import plain_rows
from walrelay.model.schema import TableSchema


class MemoryDestination(SimpleDestination):
    """Arrow tables by name: `destination.tables["public.orders"]`, or plain rows with `rows("public.orders")`."""

    name = "memory"

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.schemas: dict[str, TableSchema] = {}
        self._lock = threading.Lock()

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        table = rows.arrow()
        with self._lock:
            self.tables[str(schema.name)] = table
            self.schemas[str(schema.name)] = schema
        return WriteResult(durable=True, rows=table.num_rows)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as dictionaries."""
        return [row for batch in self.tables[table].to_batches() for row in plain_rows(batch)]
