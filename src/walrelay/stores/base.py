"""The store contract: phases, progress, shapes, what the destination has, and forgetting a table.

`walrelay.testing.store_contract.StoreContract` proves an implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import TableReplicationPhase
from walrelay.model.progress import WorkerType
from walrelay.model.schema import TableSchema
from walrelay.stores.records import (
    AppliedDestinationTableMetadata,
    DestinationTableMetadata,
    DurableProgress,
    SchemaSnapshot,
)

LOCK_GRACE = 1.0
"""Seconds for which a pipeline's lock may be in the way before it counts as held: a look at it takes less."""


WHOLE_PIPELINE: Final[TableId] = 0
"""In the place of a table: the pipeline itself. No table has this oid."""


class StateStore(Protocol):
    """Where each table and each worker stands, and what the destination has.

    Obligations: safe to call from several threads; a store speaks for one pipeline, and pipelines that share a database
    never see each other; reads come from memory, filled by `load_…` at start (or by the first read), except progress,
    which is read where it is kept; a write is in the persistent place before it is in memory, and in both before it
    returns; one that fails leaves both as they were; a bulk update is atomic; errors are `StoreError`s.
    """

    # Phases

    def load_table_replication_states(self) -> int:
        """Fill the cache; returns how many tables are known."""

    def get_table_replication_state(self, table: TableId) -> TableReplicationPhase | None:
        """The table's phase, None when it is unknown."""

    def get_table_replication_states(self) -> dict[TableId, TableReplicationPhase]:
        """The phases of all tables."""

    def update_table_replication_state(self, table: TableId, phase: TableReplicationPhase) -> None:
        """Set a phase. SyncWait and Catchup stay in memory, over the persisted phase, and end with the process."""

    def update_table_replication_states(self, phases: Mapping[TableId, TableReplicationPhase]) -> None:
        """Set several phases: all or none."""

    def rollback_table_replication_state(self, table: TableId) -> TableReplicationPhase:
        """Back to the phase before the present one; returns it. `NoEarlierPhaseError` when there is none.

        The history (`model.phases.advanced`) holds only phases that still mean something: none from before a newer
        copy, and no error. A phase that is in memory only goes back to the persisted one.
        """

    # Durable progress

    def get_durable_progress(self, worker: WorkerType) -> DurableProgress | None:
        """What was reached last. Compare the lineage before you use the LSN."""

    def update_durable_progress(self, worker: WorkerType, lineage: Lineage, lsn: Lsn) -> Lsn:
        """Store what was reached, and return what is stored: progress never goes back, so that may be more than `lsn`.

        `StoreLineageError` when what is stored belongs to another lineage: delete that first.
        """

    def delete_durable_progress(self, worker: WorkerType) -> None:
        """Forget what was reached, before a new slot is made. Idempotent."""

    # What the destination has

    def load_destination_tables_metadata(self) -> int:
        """Fill the cache; returns how many tables the destination has something of."""

    def get_destination_table_metadata(self, table: TableId) -> DestinationTableMetadata | None:
        """What the destination has of the table, or is being brought to."""

    def get_applied_destination_table_metadata(self, table: TableId) -> AppliedDestinationTableMetadata | None:
        """What the destination surely has of the table; None while a change is being applied."""

    def store_destination_table_metadata(self, table: TableId, metadata: DestinationTableMetadata) -> None:
        """Put in place of what was stored."""

    # Names of tables at the destination

    def load_table_mappings(self) -> int:
        """Fill the cache; returns how many tables have a name at the destination."""

    def get_table_mapping(self, table: TableId) -> str | None:
        """The table's name at the destination."""

    def get_table_mappings(self) -> dict[TableId, str]:
        """The names of all tables at the destination."""

    def store_table_mappings(self, mappings: Mapping[TableId, str]) -> None:
        """Several at once: all of them or none."""

    def store_table_mapping(self, table: TableId, destination_table: str) -> None:
        """Put in place of what was stored."""

    # Small facts, each a JSON document under a name: about a table, or (`WHOLE_PIPELINE`) about the pipeline

    def get_facts(self, name: str) -> dict[TableId, Any]:
        """What is known under this name, by table. Read where it is kept, as progress is."""

    def store_fact(self, table: TableId, name: str, value: Any) -> None:
        """Put in place of what was stored; None forgets it."""


class SchemaStore(Protocol):
    """The shapes that each table has had, each from an LSN on. Obligations as for `StateStore`."""

    def load_table_schemas(self) -> int:
        """Fill the cache; returns how many versions are known, of all tables together."""

    def get_table_schema(self, table: TableId, snapshot_lsn: Lsn | None = None) -> SchemaSnapshot | None:
        """The version with the greatest LSN that is not beyond the one asked for; without one, the newest."""

    def get_table_schemas(self) -> list[SchemaSnapshot]:
        """All versions of all tables, by table and LSN."""

    def store_table_schema(self, schema: TableSchema, snapshot_lsn: Lsn) -> SchemaSnapshot:
        """Keep the shape as the one that holds from `snapshot_lsn` on, in place of one stored for the same LSN."""

    def prune_table_schemas(self, retentions: Mapping[TableId, Lsn]) -> int:
        """Forget versions that nobody can ask for any more: of each table named, those older than its newest version
        at or before the LSN given. Returns how many went. Other tables keep theirs."""


class TableLifecycleStore(Protocol):
    """Forgetting. Both are atomic, idempotent, and never touch the destination."""

    def clear_table_copy_state(self, table: TableId) -> None:
        """Before a fresh copy, once the destination has dropped the table: its shapes, what the destination has of it
        and its sync worker's progress go; the phase with its history and the name at the destination stay."""

    def delete_table_pipeline_state(self, table: TableId) -> None:
        """The table left the publication: everything that is stored about it goes (SEMANTICS 12), facts too."""


class PipelineLock(Protocol):
    """The right to run a pipeline, until the end of the `with` block or the death of the process."""

    def check(self) -> None:
        """Raise StoreInUseError when the lock was lost: the connection that held it broke, or the file is gone."""


class DestinationStore(StateStore, SchemaStore, Protocol):
    """What a destination may use."""


class PipelineStore(StateStore, SchemaStore, TableLifecycleStore, Protocol):
    """All that a pipeline needs."""

    def acquire_pipeline_lock(self, patience: float = LOCK_GRACE) -> AbstractContextManager[PipelineLock]:
        """One process at a time runs a pipeline: StoreInUseError, with the name of who does, when another has it for
        longer than a moment (somebody who only looks whether it runs may have it that long)."""

    def close(self) -> None:
        """Let go of connections and files. Idempotent."""
