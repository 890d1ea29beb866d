"""What a store holds in memory, and the reads that every store answers from it."""

from __future__ import annotations

import threading
from typing import Literal

from walrelay.errors import ConfigError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import PhaseHistory, TableReplicationPhase
from walrelay.model.progress import WorkerType
from walrelay.model.schema import TableSchema
from walrelay.stores.failures import StoreLineageError
from walrelay.stores.records import (
    AppliedDestinationTableMetadata,
    DestinationTableMetadata,
    DurableProgress,
    SchemaSnapshot,
)

Part = Literal["phases", "schemas", "metadata", "mappings"]
"""What is loaded on its own."""


class CachedReads:
    """The reads of the store contract. The lock is held for a look or a change, never while a database is asked."""

    def __init__(self, pipeline_id: str) -> None:
        if not pipeline_id or "\0" in pipeline_id:
            raise ConfigError("a pipeline needs an id", hint="Give it a short name that stays the same: orders, say.")
        self.pipeline_id = pipeline_id
        self._lock = threading.RLock()
        self._histories: dict[TableId, PhaseHistory] = {}
        self._passing: dict[TableId, TableReplicationPhase] = {}
        self._schemas: dict[TableId, dict[Lsn, TableSchema]] = {}
        self._metadata: dict[TableId, DestinationTableMetadata] = {}
        self._mappings: dict[TableId, str] = {}

    def _need(self, part: Part) -> None:
        """Make sure that the part is in memory."""

    def get_table_replication_state(self, table: TableId) -> TableReplicationPhase | None:
        return self.get_table_replication_states().get(table)

    def get_table_replication_states(self) -> dict[TableId, TableReplicationPhase]:
        self._need("phases")
        with self._lock:
            return {table: history[-1] for table, history in self._histories.items()} | self._passing

    def get_destination_table_metadata(self, table: TableId) -> DestinationTableMetadata | None:
        self._need("metadata")
        with self._lock:
            return self._metadata.get(table)

    def get_applied_destination_table_metadata(self, table: TableId) -> AppliedDestinationTableMetadata | None:
        found = self.get_destination_table_metadata(table)
        if found is None or found.status != "applied":
            return None
        return AppliedDestinationTableMetadata(found.destination_table, found.snapshot_lsn, found.replication_mask)

    def get_table_mapping(self, table: TableId) -> str | None:
        return self.get_table_mappings().get(table)

    def get_table_mappings(self) -> dict[TableId, str]:
        self._need("mappings")
        with self._lock:
            return dict(self._mappings)

    def get_table_schema(self, table: TableId, snapshot_lsn: Lsn | None = None) -> SchemaSnapshot | None:
        self._need("schemas")
        with self._lock:
            versions = self._schemas.get(table, {})
            held = [lsn for lsn in versions if snapshot_lsn is None or lsn <= snapshot_lsn]
            return SchemaSnapshot(versions[max(held)], max(held)) if held else None

    def get_table_schemas(self) -> list[SchemaSnapshot]:
        self._need("schemas")
        with self._lock:
            return [
                SchemaSnapshot(versions[lsn], lsn)
                for _, versions in sorted(self._schemas.items())
                for lsn in sorted(versions)
            ]

    def _set_phases(
        self, histories: dict[TableId, PhaseHistory], passing: dict[TableId, TableReplicationPhase]
    ) -> None:
        with self._lock:
            self._histories.update(histories)
            for table in histories:
                self._passing.pop(table, None)
            self._passing.update(passing)

    def _forget_copy(self, table: TableId) -> None:
        """What `clear_table_copy_state` removes from memory."""
        self._schemas.pop(table, None)
        self._metadata.pop(table, None)

    def _forget_table(self, table: TableId) -> None:
        """What `delete_table_pipeline_state` removes from memory."""
        self._forget_copy(table)
        self._mappings.pop(table, None)
        self._histories.pop(table, None)
        self._passing.pop(table, None)


def outlived(versions: list[Lsn], retention: Lsn) -> list[Lsn]:
    """Of a table's versions those that nobody who stands at `retention` or beyond can ask for."""
    needed = max((lsn for lsn in versions if lsn <= retention), default=None)
    return [] if needed is None else [lsn for lsn in versions if lsn < needed]


def merged(stored: DurableProgress | None, worker: WorkerType, reached: DurableProgress) -> DurableProgress:
    """What is stored once `reached` is: the further one, within one lineage (SEMANTICS 4)."""
    if stored is None:
        return reached
    if stored.lineage != reached.lineage:
        raise StoreLineageError(f"the progress of {worker} belongs to {stored.lineage}; this is {reached.lineage}")
    return max(stored, reached, key=lambda progress: progress.lsn)
