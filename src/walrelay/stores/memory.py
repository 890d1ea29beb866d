"""A store that forgets when the process ends."""

from __future__ import annotations

import threading
from collections import defaultdict

from walrelay.model.names import TableId
from walrelay.model.phases import TableReplicationPhase, is_persisted
from walrelay.model.schema import TableSchema


class MemoryStore:
    """Everything in dictionaries; for one-off copies and tests."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._history: defaultdict[TableId, list[TableReplicationPhase]] = defaultdict(list)
        self._passing: dict[TableId, TableReplicationPhase] = {}
        self._schemas: dict[TableId, TableSchema] = {}

    def load_table_replication_states(self) -> int:
        return len(self.get_table_replication_states())

    def get_table_replication_state(self, table: TableId) -> TableReplicationPhase | None:
        return self.get_table_replication_states().get(table)

    def get_table_replication_states(self) -> dict[TableId, TableReplicationPhase]:
        with self._lock:
            kept = {table: phases[-1] for table, phases in self._history.items() if phases}
            return kept | self._passing

    def update_table_replication_state(self, table: TableId, phase: TableReplicationPhase) -> None:
        self.update_table_replication_states({table: phase})

    def update_table_replication_states(self, phases: dict[TableId, TableReplicationPhase]) -> None:
        with self._lock:
            for table, phase in phases.items():
                if is_persisted(phase):
                    self._history[table].append(phase)
                    self._passing.pop(table, None)
                else:
                    self._passing[table] = phase

    def rollback_table_replication_state(self, table: TableId) -> TableReplicationPhase:
        with self._lock:
            phases = self._history[table]
            if len(phases) < 2:
                raise KeyError(f"table {table} has no earlier phase")
            phases.pop()
            self._passing.pop(table, None)
            return phases[-1]

    def store_table_schema(self, schema: TableSchema) -> TableSchema:
        with self._lock:
            self._schemas[schema.id] = schema
        return schema

    def get_table_schema(self, table: TableId) -> TableSchema | None:
        with self._lock:
            return self._schemas.get(table)

    def get_table_schemas(self) -> list[TableSchema]:
        with self._lock:
            return list(self._schemas.values())

    def clear_table_copy_state(self, table: TableId) -> None:
        with self._lock:
            self._schemas.pop(table, None)

    def delete_table_pipeline_state(self, table: TableId) -> None:
        with self._lock:
            self._schemas.pop(table, None)
            self._passing.pop(table, None)
            self._history.pop(table, None)
