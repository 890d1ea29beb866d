"""The store on a SQL database: writes go there first, then to memory; reads come from memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, delete, insert, literal, select, union_all

from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import (
    PhaseHistory,
    TableReplicationPhase,
    advanced,
    is_persisted,
    phase_from_json,
    phase_to_json,
)
from walrelay.model.progress import TableSync, WorkerType
from walrelay.model.schema import TableSchema
from walrelay.model.schema_json import schema_from_json, schema_to_json
from walrelay.stores.cache import CachedReads, Part, merged, outlived
from walrelay.stores.failures import NoEarlierPhaseError, StoreError, parsing
from walrelay.stores.records import DestinationTableMetadata, DurableProgress, SchemaSnapshot
from walrelay.stores.sql.database import IN_DOUBT, Database
from walrelay.stores.sql.tables import (
    destination_tables,
    facts,
    table_mappings,
    table_phases,
    table_schemas,
    worker_progress,
)

_COPY_TABLES = (destination_tables, table_schemas)
"""What a fresh copy of a table forgets, besides the progress of its sync worker."""


class SqlStore(CachedReads):
    """All of the store contract but the pipeline's lock.

    What a write makes is computed from what the database holds, inside the transaction, so that another process (a
    rollback from the command line, say) is not overwritten unseen.
    """

    def __init__(self, database: Database, pipeline_id: str) -> None:
        super().__init__(pipeline_id)
        self._database = database
        self._loaded: set[Part] = set()
        self._order = threading.RLock()  # memory must change in the order in which the database did
        database.open(pipeline_id)

    def close(self) -> None:
        self._database.close()

    # ------------------------------------------------------------------------------------------------ loading

    def _need(self, part: Part) -> None:
        if part not in self._loaded:
            load: dict[Part, Callable[[], int]] = {
                "phases": self.load_table_replication_states,
                "schemas": self.load_table_schemas,
                "metadata": self.load_destination_tables_metadata,
                "mappings": self.load_table_mappings,
            }
            load[part]()

    def load_table_replication_states(self) -> int:
        found: dict[TableId, PhaseHistory] = {}
        with self._loading("phases", self._all(table_phases)) as rows:
            for row in rows:
                with self._parsing("phase", row):
                    phase = phase_from_json(json.loads(row.phase))
                    found[row.table_id] = (*found.get(row.table_id, ()), phase)
            self._histories = found
        return len(found)

    def load_table_schemas(self) -> int:
        found: dict[TableId, dict[Lsn, TableSchema]] = {}
        with self._loading("schemas", self._all(table_schemas)) as rows:
            for row in rows:
                with self._parsing("shape", row):
                    schema = schema_from_json(json.loads(row.body))
                    found.setdefault(row.table_id, {})[Lsn.parse(row.snapshot_lsn)] = schema
            self._schemas = found
        return sum(len(versions) for versions in found.values())

    def load_destination_tables_metadata(self) -> int:
        found: dict[TableId, DestinationTableMetadata] = {}
        with self._loading("metadata", self._all(destination_tables)) as rows:
            for row in rows:
                with self._parsing("destination's state", row):
                    found[row.table_id] = _metadata_of(row)
            self._metadata = found
        return len(found)

    def load_table_mappings(self) -> int:
        with self._loading("mappings", self._all(table_mappings)) as rows:
            self._mappings = {row.table_id: row.destination_table for row in rows}
            return len(self._mappings)

    # ------------------------------------------------------------------------------------------------- phases

    def update_table_replication_state(self, table: TableId, phase: TableReplicationPhase) -> None:
        self.update_table_replication_states({table: phase})

    def update_table_replication_states(self, phases: Mapping[TableId, TableReplicationPhase]) -> None:
        kept = {table: phase for table, phase in phases.items() if is_persisted(phase)}
        passing = {table: phase for table, phase in phases.items() if table not in kept}
        with self._order:
            histories: dict[TableId, PhaseHistory] = {}
            if kept:
                with self._writing() as connection:
                    for table, phase in kept.items():
                        histories[table] = advanced(self._read_history(connection, table), phase)
                        self._write_history(connection, table, histories[table])
            self._set_phases(histories, passing)

    def rollback_table_replication_state(self, table: TableId) -> TableReplicationPhase:
        with self._order:
            with self._writing() as connection:
                history = self._read_history(connection, table)
                if table not in self._passing:
                    history = history[:-1]
                if not history:
                    raise NoEarlierPhaseError(f"table {table} has no earlier phase")
                self._write_history(connection, table, history)
            self._set_phases({table: history}, {})
            return history[-1]

    def _read_history(self, connection: Connection, table: TableId) -> PhaseHistory:
        rows = connection.execute(self._all(table_phases).where(table_phases.c.table_id == table)).all()
        phases = []
        for row in rows:
            with self._parsing("phase", row):
                phases.append(phase_from_json(json.loads(row.phase)))
        return tuple(phases)

    def _write_history(self, connection: Connection, table: TableId, history: PhaseHistory) -> None:
        connection.execute(delete(table_phases).where(self._of(table_phases, table)))
        rows = [
            {**self._key(table), "position": position, "phase": json.dumps(phase_to_json(phase))}
            for position, phase in enumerate(history)
        ]
        connection.execute(insert(table_phases), rows)

    # ----------------------------------------------------------------------------------------------- progress

    def get_durable_progress(self, worker: WorkerType) -> DurableProgress | None:
        with self._database.reading() as connection:
            return self._read_progress(connection, worker)

    def update_durable_progress(self, worker: WorkerType, lineage: Lineage, lsn: Lsn) -> Lsn:
        with self._order, self._writing() as connection:
            stored = self._read_progress(connection, worker)
            reached = merged(stored, worker, DurableProgress(lineage, lsn))
            if reached != stored:
                connection.execute(delete(worker_progress).where(self._of_worker(worker)))
                connection.execute(
                    insert(worker_progress).values(
                        pipeline_id=self.pipeline_id,
                        worker=str(worker),
                        slot=lineage.slot,
                        system_identifier=lineage.system_identifier,
                        timeline=lineage.timeline,
                        created_lsn=str(lineage.created_lsn),
                        lsn=str(reached.lsn),
                        updated_at=datetime.now(UTC).isoformat(),
                    )
                )
        return reached.lsn

    def delete_durable_progress(self, worker: WorkerType) -> None:
        with self._order, self._writing() as connection:
            connection.execute(delete(worker_progress).where(self._of_worker(worker)))

    def _read_progress(self, connection: Connection, worker: WorkerType) -> DurableProgress | None:
        row = connection.execute(select(worker_progress).where(self._of_worker(worker))).first()
        if row is None:
            return None
        with parsing(f"in the store {self._database.where} the progress of {worker}"):
            lineage = Lineage(row.slot, row.system_identifier, int(row.timeline), Lsn.parse(row.created_lsn))
            return DurableProgress(lineage, Lsn.parse(row.lsn))

    # ------------------------------------------------------------------------------ what the destination has

    def store_destination_table_metadata(self, table: TableId, metadata: DestinationTableMetadata) -> None:
        previous = metadata.previous_snapshot_lsn
        values = {
            "destination_table": metadata.destination_table,
            "snapshot_lsn": str(metadata.snapshot_lsn),
            "previous_snapshot_lsn": None if previous is None else str(previous),
            "status": metadata.status,
            "replication_mask": "".join("1" if sent else "0" for sent in metadata.replication_mask),
        }
        with self._order:
            with self._writing() as connection:
                self._replace(connection, destination_tables, table, values)
            with self._lock:
                self._metadata[table] = metadata

    def store_table_mapping(self, table: TableId, destination_table: str) -> None:
        self.store_table_mappings({table: destination_table})

    def store_table_mappings(self, mappings: Mapping[TableId, str]) -> None:
        with self._order:
            with self._writing() as connection:
                for table, destination_table in mappings.items():
                    self._replace(connection, table_mappings, table, {"destination_table": destination_table})
            with self._lock:
                self._mappings.update(mappings)

    # -------------------------------------------------------------------------------------------------- facts

    def get_facts(self, name: str) -> dict[TableId, Any]:
        with self._database.reading() as connection:
            rows = connection.execute(self._all(facts).where(facts.c.name == name)).all()
        found = {}
        for row in rows:
            with self._parsing(f"fact {name}", row):
                found[row.table_id] = json.loads(row.body)
        return found

    def store_fact(self, table: TableId, name: str, value: Any) -> None:
        with self._order, self._writing() as connection:
            connection.execute(delete(facts).where(self._of(facts, table), facts.c.name == name))
            if value is not None:
                connection.execute(insert(facts).values(**self._key(table), name=name, body=json.dumps(value)))

    # ------------------------------------------------------------------------------------------------- shapes

    def store_table_schema(self, schema: TableSchema, snapshot_lsn: Lsn) -> SchemaSnapshot:
        same = table_schemas.c.snapshot_lsn == str(snapshot_lsn)
        values = {"snapshot_lsn": str(snapshot_lsn), "body": json.dumps(schema_to_json(schema))}
        with self._order:
            with self._writing() as connection:
                connection.execute(delete(table_schemas).where(self._of(table_schemas, schema.id), same))
                connection.execute(insert(table_schemas).values(**self._key(schema.id), **values))
            with self._lock:
                self._schemas.setdefault(schema.id, {})[snapshot_lsn] = schema
        return SchemaSnapshot(schema, snapshot_lsn)

    def prune_table_schemas(self, retentions: Mapping[TableId, Lsn]) -> int:
        gone: list[tuple[TableId, Lsn]] = []
        with self._order:
            with self._writing() as connection:
                for table, retention in retentions.items():
                    mine = self._of(table_schemas, table)
                    stored = connection.execute(select(table_schemas.c.snapshot_lsn).where(mine)).scalars().all()
                    with parsing(f"in the store {self._database.where} a shape of table {table}"):
                        versions = [Lsn.parse(text) for text in stored]
                    for lsn in outlived(versions, retention):
                        connection.execute(delete(table_schemas).where(mine, table_schemas.c.snapshot_lsn == str(lsn)))
                        gone.append((table, lsn))
            with self._lock:
                for table, lsn in gone:
                    self._schemas.get(table, {}).pop(lsn, None)
        return len(gone)

    # --------------------------------------------------------------------------------------------- forgetting

    def clear_table_copy_state(self, table: TableId) -> None:
        with self._order:
            # Most often there is nothing, and a look is cheaper than a commit.
            if self._has_copy(table):
                with self._writing() as connection:
                    self._delete_copy(connection, table)
            with self._lock:
                self._forget_copy(table)

    def delete_table_pipeline_state(self, table: TableId) -> None:
        with self._order:
            with self._writing() as connection:
                self._delete_copy(connection, table)
                for kind in (table_mappings, table_phases, facts):
                    connection.execute(delete(kind).where(self._of(kind, table)))
            with self._lock:
                self._forget_table(table)

    def _has_copy(self, table: TableId) -> bool:
        rows = [select(literal(1)).select_from(kind).where(self._of(kind, table)) for kind in _COPY_TABLES]
        rows.append(select(literal(1)).select_from(worker_progress).where(self._of_worker(TableSync(table))))
        with self._database.reading() as connection:
            return connection.execute(union_all(*rows)).first() is not None

    def _delete_copy(self, connection: Connection, table: TableId) -> None:
        for kind in _COPY_TABLES:
            connection.execute(delete(kind).where(self._of(kind, table)))
        connection.execute(delete(worker_progress).where(self._of_worker(TableSync(table))))

    # ------------------------------------------------------------------------------------------------ the rest

    @contextmanager
    def _loading(self, part: Part, query: Select[Any]) -> Iterator[list[Row[Any]]]:
        """The rows of a part; once the block has put them in memory, the part counts as loaded."""
        with self._order:
            with self._database.reading() as connection:
                rows = list(connection.execute(query).all())
            with self._lock:
                yield rows
                self._loaded.add(part)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._database.writing(self.pipeline_id) as connection:
                yield connection
        except StoreError as error:
            if error.context.get(IN_DOUBT):
                self._loaded.clear()  # what memory holds may be behind: the next read looks
            raise

    def _all(self, table: Table) -> Select[Any]:
        """This pipeline's rows, in the order of the key."""
        return select(table).where(table.c.pipeline_id == self.pipeline_id).order_by(*table.primary_key.columns)

    def _key(self, table: TableId) -> dict[str, Any]:
        return {"pipeline_id": self.pipeline_id, "table_id": table}

    def _of(self, kind: Table, table: TableId) -> ColumnElement[bool]:
        return and_(kind.c.pipeline_id == self.pipeline_id, kind.c.table_id == table)

    def _of_worker(self, worker: WorkerType) -> ColumnElement[bool]:
        return and_(worker_progress.c.pipeline_id == self.pipeline_id, worker_progress.c.worker == str(worker))

    def _replace(self, connection: Connection, kind: Table, table: TableId, values: dict[str, Any]) -> None:
        connection.execute(delete(kind).where(self._of(kind, table)))
        connection.execute(insert(kind).values(**self._key(table), **values))

    @contextmanager
    def _parsing(self, what: str, row: Row[Any]) -> Iterator[None]:
        with parsing(f"in the store {self._database.where} the {what} of table {row.table_id}"):
            yield


def _metadata_of(row: Row[Any]) -> DestinationTableMetadata:
    if row.status not in ("applying", "applied") or set(row.replication_mask) - {"0", "1"}:
        raise ValueError("no such state")
    previous = row.previous_snapshot_lsn
    return DestinationTableMetadata(
        row.destination_table,
        Lsn.parse(row.snapshot_lsn),
        tuple(sent == "1" for sent in row.replication_mask),
        row.status,
        None if previous is None else Lsn.parse(previous),
    )
