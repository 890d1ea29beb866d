"""The store contract: phases, schemas, and forgetting a table."""

from __future__ import annotations

from typing import Protocol

from walrelay.model.names import TableId
from walrelay.model.phases import TableReplicationPhase
from walrelay.model.schema import TableSchema


class StateStore(Protocol):
    """Where each table stands.

    Obligations: safe to call from several threads; reads come from memory, filled by `load_…` at start; an update is in
    memory and in the persistent place before it returns; a bulk update is atomic.
    """

    def load_table_replication_states(self) -> int:
        """Fill the cache; returns how many tables are known."""

    def get_table_replication_state(self, table: TableId) -> TableReplicationPhase | None: ...

    def get_table_replication_states(self) -> dict[TableId, TableReplicationPhase]: ...

    def update_table_replication_state(self, table: TableId, phase: TableReplicationPhase) -> None: ...

    def update_table_replication_states(self, phases: dict[TableId, TableReplicationPhase]) -> None: ...

    def rollback_table_replication_state(self, table: TableId) -> TableReplicationPhase:
        """Back to the phase before the present one; returns it. `KeyError` when there is none."""


class SchemaStore(Protocol):
    """The shape each table was last copied with."""

    def store_table_schema(self, schema: TableSchema) -> TableSchema: ...

    def get_table_schema(self, table: TableId) -> TableSchema | None: ...

    def get_table_schemas(self) -> list[TableSchema]: ...


class TableLifecycleStore(Protocol):
    """Forgetting."""

    def clear_table_copy_state(self, table: TableId) -> None:
        """Before a fresh copy: everything but the phase goes."""

    def delete_table_pipeline_state(self, table: TableId) -> None:
        """The table left the publication: everything goes; the destination is not touched."""


class PipelineStore(StateStore, SchemaStore, TableLifecycleStore, Protocol):
    """All that a pipeline needs."""
