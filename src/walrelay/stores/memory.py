"""A store that forgets when the process ends."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import TableReplicationPhase, advanced, is_persisted
from walrelay.model.progress import TableSync, WorkerType
from walrelay.model.schema import TableSchema
from walrelay.stores.base import LOCK_GRACE, PipelineLock
from walrelay.stores.cache import CachedReads, merged, outlived
from walrelay.stores.failures import NoEarlierPhaseError, StoreInUseError
from walrelay.stores.records import DestinationTableMetadata, DurableProgress, SchemaSnapshot

_running: dict[str, str] = {}
"""The pipelines that this process runs, with the names of the threads that do."""
_running_changed = threading.Condition()


class _ProcessLock:
    """Cannot be lost."""

    def check(self) -> None:
        pass


class MemoryStore(CachedReads):
    """Everything in dictionaries; for one-off copies and tests. Without an id it belongs to a pipeline of its own."""

    def __init__(self, pipeline_id: str | None = None) -> None:
        super().__init__(f"memory-{uuid.uuid4().hex[:12]}" if pipeline_id is None else pipeline_id)
        self._progress: dict[WorkerType, DurableProgress] = {}
        self._facts: dict[str, dict[TableId, Any]] = {}

    def load_table_replication_states(self) -> int:
        return len(self._histories)

    def load_destination_tables_metadata(self) -> int:
        return len(self._metadata)

    def load_table_mappings(self) -> int:
        return len(self._mappings)

    def load_table_schemas(self) -> int:
        return len(self.get_table_schemas())

    def update_table_replication_state(self, table: TableId, phase: TableReplicationPhase) -> None:
        self.update_table_replication_states({table: phase})

    def update_table_replication_states(self, phases: Mapping[TableId, TableReplicationPhase]) -> None:
        kept = {table: phase for table, phase in phases.items() if is_persisted(phase)}
        with self._lock:
            histories = {table: advanced(self._histories.get(table, ()), phase) for table, phase in kept.items()}
            self._set_phases(histories, {table: phase for table, phase in phases.items() if table not in kept})

    def rollback_table_replication_state(self, table: TableId) -> TableReplicationPhase:
        with self._lock:
            history = self._histories.get(table, ())
            if table not in self._passing:
                history = history[:-1]
            if not history:
                raise NoEarlierPhaseError(f"table {table} has no earlier phase")
            self._passing.pop(table, None)
            self._histories[table] = history
            return history[-1]

    def get_durable_progress(self, worker: WorkerType) -> DurableProgress | None:
        with self._lock:
            return self._progress.get(worker)

    def update_durable_progress(self, worker: WorkerType, lineage: Lineage, lsn: Lsn) -> Lsn:
        with self._lock:
            self._progress[worker] = merged(self._progress.get(worker), worker, DurableProgress(lineage, lsn))
            return self._progress[worker].lsn

    def delete_durable_progress(self, worker: WorkerType) -> None:
        with self._lock:
            self._progress.pop(worker, None)

    def store_destination_table_metadata(self, table: TableId, metadata: DestinationTableMetadata) -> None:
        with self._lock:
            self._metadata[table] = metadata

    def store_table_mapping(self, table: TableId, destination_table: str) -> None:
        self.store_table_mappings({table: destination_table})

    def store_table_mappings(self, mappings: Mapping[TableId, str]) -> None:
        with self._lock:
            self._mappings.update(mappings)

    def get_facts(self, name: str) -> dict[TableId, Any]:
        with self._lock:
            return deepcopy(self._facts.get(name, {}))

    def store_fact(self, table: TableId, name: str, value: Any) -> None:
        with self._lock:
            self._facts.setdefault(name, {}).pop(table, None)
            if value is not None:
                self._facts[name][table] = deepcopy(value)

    def store_table_schema(self, schema: TableSchema, snapshot_lsn: Lsn) -> SchemaSnapshot:
        with self._lock:
            self._schemas.setdefault(schema.id, {})[snapshot_lsn] = schema
        return SchemaSnapshot(schema, snapshot_lsn)

    def prune_table_schemas(self, retentions: Mapping[TableId, Lsn]) -> int:
        pruned = 0
        with self._lock:
            for table, retention in retentions.items():
                versions = self._schemas.get(table, {})
                for lsn in outlived(list(versions), retention):
                    del versions[lsn]
                    pruned += 1
        return pruned

    def clear_table_copy_state(self, table: TableId) -> None:
        with self._lock:
            self._forget_copy(table)
            self._progress.pop(TableSync(table), None)

    def delete_table_pipeline_state(self, table: TableId) -> None:
        with self._lock:
            self.clear_table_copy_state(table)
            self._forget_table(table)
            for facts in self._facts.values():
                facts.pop(table, None)

    @contextmanager
    def acquire_pipeline_lock(self, patience: float = LOCK_GRACE) -> Iterator[PipelineLock]:
        mine = self.pipeline_id
        with _running_changed:
            if not _running_changed.wait_for(lambda: mine not in _running, patience):
                raise StoreInUseError(f"this process runs the pipeline {mine} already (thread {_running[mine]})")
            _running[mine] = threading.current_thread().name
        try:
            yield _ProcessLock()
        finally:
            with _running_changed:
                del _running[mine]
                _running_changed.notify_all()

    def close(self) -> None:
        pass
