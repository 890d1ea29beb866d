"""Nowhere: rows are read and decoded, then dropped. For measuring, and for proving that a source can be read."""

from __future__ import annotations

from typing import Self

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.destinations.base import SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.urls import refuse_rest
from walrelay.model.schema import TableSchema


class NullDestination(SimpleDestination):
    """Takes everything, keeps nothing."""

    name = "null"
    capabilities = Capabilities(takes_changes=True, lands_files=False)

    @classmethod
    def from_url(cls, url: str) -> Self:
        refuse_rest(url)
        return cls()

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        return WriteResult(durable=True, rows=rows.rows_total)

    def write_events(self, batch: EventBatch) -> WriteResult:
        return WriteResult(durable=True, rows=sum(one.batch.num_rows for one in batch.batches()))
