"""Tables kept in memory: for tests and small scripts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from walrelay.decode.base import ARROW, Target
from walrelay.destinations.base import DestinationContext, TableRows, WriteResult
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema


class MemoryDestination:
    """Arrow tables by name: `destination.tables["public.orders"]`, or plain rows with `rows("public.orders")`."""

    name = "memory"
    target: Target = ARROW
    lands_files = True

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.schemas: dict[str, TableSchema] = {}
        self._lock = threading.Lock()

    def startup(self, context: DestinationContext) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def staging_root(self) -> Path | None:
        return None

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        pass

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        table = rows.arrow()
        with self._lock:
            self.tables[str(schema.name)] = table
            self.schemas[str(schema.name)] = schema
        return WriteResult(durable=True, rows=table.num_rows)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return None

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as dictionaries."""
        return self.tables[table].to_pylist()  # type: ignore[no-any-return]
