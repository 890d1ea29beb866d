"""Nowhere: rows are read and decoded, then dropped. For measuring, and for proving that a source can be read."""

from __future__ import annotations

from pathlib import Path

from walrelay.decode.base import ARROW, Target
from walrelay.destinations.base import DestinationContext, TableRows, WriteResult
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema


class NullDestination:
    """Takes everything, keeps nothing."""

    name = "null"
    target: Target = ARROW
    lands_files = False

    def startup(self, context: DestinationContext) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def staging_root(self) -> Path | None:
        return None

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        pass

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        return WriteResult(durable=True, rows=rows.rows_total)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return None
