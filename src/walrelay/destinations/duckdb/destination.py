"""Tables in a DuckDB file: copies replace them, changes keep them current, each in one transaction.

DuckDB lets one process in at a time, so the file is open only while something is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities, Lane, SparkNeeds
from walrelay.destinations.duckdb.apply import Application
from walrelay.destinations.duckdb.dialect import DIALECT, quoted
from walrelay.destinations.duckdb.file import DuckDBFile, catalog_of, duckdb_module
from walrelay.destinations.duckdb.landed import FRAME_SETTINGS, Landed
from walrelay.destinations.duckdb.load import Loading, drop_unfinished
from walrelay.destinations.duckdb.names import folded, refuse_twins
from walrelay.destinations.duckdb.owner import Ownership, write_lock
from walrelay.destinations.duckdb.pieces import Plan, plan, weight
from walrelay.destinations.duckdb.places import DuckDBPlaces
from walrelay.destinations.duckdb.progress import WHOLE, ProgressBook, place
from walrelay.destinations.duckdb.shape import comment
from walrelay.destinations.duckdb.verify import DuckDBLook
from walrelay.destinations.holdings import writer_of
from walrelay.destinations.notices import taken_over
from walrelay.destinations.urls import options_in, path_in
from walrelay.destinations.verifying import Look
from walrelay.errors import (
    ConfigError,
    DestinationError,
    DestinationNotWritableError,
    NotVerifiableError,
)
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.stores.file_lock import FileLock

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from walrelay.destinations.duckdb.frame_lane import FrameLane

SMALL_BYTES = 16 * 1024 * 1024
"""Landed files of up to this are loaded at once: some tenths of a second, rows counted as `weight` does."""
GONE = ("No files found", "No such file")
"""How DuckDB says that a file is not there any more."""
ATTEMPTS = 10
"""How often a batch is begun again because compaction has replaced a file of the log meanwhile."""


class DuckDBDestination(SimpleDestination):
    """A DuckDB file. Tables keep schema, name, column names and order; `_walrelay.tables` says what was copied when,
    and the primary key, which also stands in each table's comment."""

    name = "duckdb"
    dialect = DIALECT

    def __init__(
        self,
        path: str | Path,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        piece_bytes: int | None = None,
        lane: Lane = "files",
    ) -> None:
        if lane not in ("files", "frames"):
            raise ConfigError(f"DuckDB has no lane {lane}", hint="Use files, or frames.")
        self.capabilities = Capabilities(
            kind="tables",
            takes_changes=True,
            lane=lane,
            keeps_progress=True,
            atomic_across_tables=True,
            spark=SparkNeeds(settings=FRAME_SETTINGS if lane == "frames" else {}),
        )
        self.path = Path(path)
        self._piece_bytes = piece_bytes
        settings = {"memory_limit": memory_limit, "threads": None if threads is None else str(threads)}
        self._file = DuckDBFile(self.path, {name: value for name, value in settings.items() if value is not None})
        self._threads = threads or 1
        self._loads: dict[TableId, threading.Lock] = {}
        self._touched: set[TableId] = set()
        """Tables of which the file may know something."""
        self._always_look = False
        """Whether it may know something of others, too."""
        self._names: set[tuple[bytes, ...]] = set()
        """Names that tables had when it was opened."""
        self._context: DestinationContext | None = None
        self._lock: FileLock | None = None
        self._id: str | None = None
        self._frames: FrameLane | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        options = options_in(url, "memory_limit", "threads", "lane")
        threads = int(options["threads"]) if options.get("threads", "").isdigit() else None
        return cls(
            path_in(url, "DuckDB", "out.duckdb"),
            memory_limit=options.get("memory_limit"),
            threads=threads,
            lane=cast("Lane", options.get("lane", "files")),
        )

    def startup(self, context: DestinationContext) -> None:
        duckdb_module()
        self._context = self._file.context = context
        parent = self.path.parent
        if not parent.is_dir():
            raise DestinationNotWritableError(f"the directory {parent} does not exist", hint=f"mkdir -p {parent}")
        writable = os.access(self.path, os.W_OK) if self.path.exists() else os.access(parent, os.W_OK)
        if self.path.is_dir() or not writable:
            raise DestinationNotWritableError(f"cannot write to {self.path}")
        self._lock = write_lock(self.path, context)
        try:
            self._open(context)
        except BaseException:
            self.shutdown()
            raise

    def _open(self, context: DestinationContext) -> None:
        with self._file.opened() as connection:
            catalog = catalog_of(connection)
            connection.execute("BEGIN")
            self._id = Ownership(connection, catalog, self.path, context).admit()
            book = ProgressBook(connection, catalog, writer_of(context))
            self._touched = set(book.tables())
            self._names = {folded(one.name.schema, one.name.name) for one in book.holdings()}
            drop_unfinished(connection, catalog, context.pipeline_id)
            connection.execute("COMMIT")
            ((self._threads,),) = connection.execute("SELECT current_setting('threads')").fetchall()

    def shutdown(self) -> None:
        try:
            self._file.close()
        finally:
            self._context = self._frames = None
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release(remove=True)

    def identity(self) -> Identity | None:
        return None if self._id is None else Identity(self._id, str(self.path.absolute()))

    def staging_root(self) -> Path:
        return self.path.parent / f".{self.path.name}.walrelay"

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied, and what an attempt has left. The copy replaces the table; until then the old rows
        stay readable."""
        is_new = schema.id not in self._touched and folded(schema.name.schema, schema.name.name) not in self._names
        if is_new and not self._always_look:
            return  # with hundreds of new tables, each look at the file would be felt
        with self._alone(schema), self._file.alone() as (connection, catalog):
            book = self._book(connection, catalog)
            connection.execute("BEGIN")
            self._check(connection, catalog, schema)
            self._loading(schema).drop(connection, catalog)
            if book.knows(schema.id):
                book.forget(schema.id)
            connection.execute("COMMIT")

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        loading, steps = self._loading(schema), self._plan(schema, rows)
        self._touched.add(schema.id)
        with self._alone(schema):
            if steps.pieces > 1 or (steps.pieces and self._others_wait() and weight(rows.files) > SMALL_BYTES):
                count = self._write_beside(schema, rows, loading, steps)
            else:
                count = self._write_at_once(schema, rows, loading, steps)
        return WriteResult(durable=True, rows=count)

    def _loading(self, schema: TableSchema) -> Loading:
        assert self._context is not None, "startup() comes first"
        return Loading(schema, self._context.pipeline_id)

    def _others_wait(self) -> bool:
        assert self._context is not None, "startup() comes first"
        return self._context.others_wait

    def _plan(self, schema: TableSchema, rows: TableRows) -> Plan:
        others_wait, piece_bytes = self._others_wait(), self._piece_bytes
        return plan(schema, rows.files, threads=self._threads, others_wait=others_wait, piece_bytes=piece_bytes)

    def _alone(self, schema: TableSchema) -> threading.Lock:
        """Two copies of one table would build on each other."""
        return self._loads.setdefault(schema.id, threading.Lock())

    def _write_at_once(self, schema: TableSchema, rows: TableRows, loading: Loading, steps: Plan) -> int:
        with self._file.alone() as (connection, catalog):
            connection.execute("BEGIN")
            self._prepare(connection, catalog, schema)
            self._make_room(connection, catalog, schema)
            count = loading.replace(connection, catalog, steps.only)
            self._finish(connection, catalog, schema, rows, count)
        return count

    def _write_beside(self, schema: TableSchema, rows: TableRows, loading: Loading, steps: Plan) -> int:
        try:
            with self._file.alone() as (connection, catalog):
                connection.execute("BEGIN")
                self._prepare(connection, catalog, schema)
                loading.begin(connection, catalog, steps.rounds[0][0])
                connection.execute("COMMIT")
            count = self._load(schema, loading, steps)
            with self._file.alone() as (connection, catalog):
                connection.execute("BEGIN")
                self._prepare(connection, catalog, schema)
                self._make_room(connection, catalog, schema)
                loading.put_in_place(connection, catalog)
                self._finish(connection, catalog, schema, rows, count)
        except BaseException:
            with suppress(Exception), self._file.alone() as (connection, catalog):
                loading.drop(connection, catalog)
            raise
        return count

    def _load(self, schema: TableSchema, loading: Loading, steps: Plan) -> int:
        """Into the table beside; between two rounds the file is free for other processes, too."""
        assert self._context is not None, "startup() comes first"
        count = 0
        for pieces in steps.rounds:
            if self._context.stopping.is_set():
                raise DestinationError(f"stopped while {schema.name} was loaded", hint="The next run copies it again.")
            with self._file.beside(in_order=steps.in_order, count=len(pieces)) as (connections, catalog):
                count += loading.add(connections, catalog, pieces)
            hit("destination.piece")
        return count

    def _finish(
        self, connection: DuckDBPyConnection, catalog: str, schema: TableSchema, rows: TableRows, count: int
    ) -> None:
        if count != rows.rows_total:
            raise DestinationError(
                f"{schema.name} took {count} of {rows.rows_total} rows",
                hint="Nothing of this copy was kept. `walrelay resync` copies the table again.",
            )
        self._record_copy(connection, catalog, schema, count, rows.snapshot_lsn)
        hit("destination.before_commit")
        connection.execute("COMMIT")

    def _prepare(self, connection: DuckDBPyConnection, catalog: str, schema: TableSchema) -> None:
        self._ownership(connection, catalog).check(schema.id, schema.name)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(schema.name.schema)}")
        refuse_twins(connection, schema)

    def _check(self, connection: DuckDBPyConnection, catalog: str, schema: TableSchema) -> None:
        """Refuse what is not ours to replace; say whose tables are taken over."""
        assert self._context is not None, "startup() comes first"
        ownership = self._ownership(connection, catalog)
        ownership.check(schema.id, schema.name)
        before = ownership.taken_over(schema.name)
        if before is not None:
            self._context.notify(taken_over(schema.name, before))

    def _make_room(self, connection: DuckDBPyConnection, catalog: str, schema: TableSchema) -> None:
        DuckDBPlaces(connection, catalog, self._book(connection, catalog)).make_room_for_copy(schema.id, schema.name)

    def _ownership(self, connection: DuckDBPyConnection, catalog: str) -> Ownership:
        assert self._context is not None, "startup() comes first"
        return Ownership(connection, catalog, self.path, self._context)

    def _book(self, connection: DuckDBPyConnection, catalog: str) -> ProgressBook:
        assert self._context is not None, "startup() comes first"
        return ProgressBook(connection, catalog, writer_of(self._context))

    def _record_copy(
        self, connection: DuckDBPyConnection, catalog: str, schema: TableSchema, count: int, snapshot_lsn: Lsn | None
    ) -> None:
        connection.execute(comment(place(catalog, schema.name), schema))
        book = self._book(connection, catalog)
        book.enter_copy(schema, count, snapshot_lsn)
        book.copied(schema, snapshot_lsn)

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Everything of the batch that is new, with the position reached, in one transaction."""
        assert self._context is not None, "startup() comes first"
        if batch.ranges is None:
            self._always_look = True
        else:
            self._touched.update(one.table for one in batch.ranges)
        with self._landed(batch) as landed:
            return self._take(batch, landed)

    @contextmanager
    def _landed(self, batch: EventBatch) -> Iterator[Landed]:
        """What Spark makes of the batch in the frame lane; nobody waits for the file meanwhile."""
        assert self._context is not None, "startup() comes first"
        if self.capabilities.lane == "files":
            yield Landed()
            return
        with self._file.alone() as (connection, catalog):
            connection.execute("BEGIN")
            application = Application(connection, catalog, batch, self._context.settings.special_values)
            parts, shapes = application.news()
            connection.execute("ROLLBACK")
        from walrelay.destinations.duckdb.frame_lane import FrameLane  # which loads Spark

        self._frames = self._frames or FrameLane(self._context, self.staging_root())
        with self._frames.landed(batch.log.storage, parts, shapes) as landed:
            yield landed

    def _take(self, batch: EventBatch, landed: Landed) -> WriteResult:
        assert self._context is not None, "startup() comes first"
        special_values, writer = self._context.settings.special_values, writer_of(self._context)
        for attempt in range(1, ATTEMPTS + 1):
            with self._file.alone() as (connection, catalog):
                connection.execute("BEGIN")
                try:
                    application = Application(connection, catalog, batch, special_values, writer, landed)
                    count = application.run()
                except duckdb_module().IOException as error:
                    # Compaction may have replaced a file since it was listed.
                    if attempt == ATTEMPTS or not any(words in str(error) for words in GONE):
                        raise
                    continue
                hit("destination.before_commit")
                connection.execute("COMMIT")
                return WriteResult(durable=True, rows=count, treated=application.treated)
        raise AssertionError("unreachable")

    @contextmanager
    def looking(self, context: DestinationContext, *, writing: bool = False) -> Iterator[Look]:
        """As `Verifiable` wants it: within a run of this same object by its own DuckDB, else beside it."""
        if not self.path.exists():
            raise NotVerifiableError(
                f"there is no DuckDB file {self.path}", hint="Give the destination that `walrelay replicate` writes to."
            )
        file = self._file
        if self._context is None:
            file = DuckDBFile(self.path, {})
            file.context = context
        with file.alone() if self._context is not None else file.visited(writing=writing) as (connection, catalog):
            connection.execute("BEGIN")
            yield DuckDBLook(connection, catalog, writer_of(context))
            connection.execute("COMMIT" if writing else "ROLLBACK")

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table, or all tables together, hold every change; None after a copy, until changes came."""
        with self._file.alone() as (connection, catalog):
            table = WHOLE if table is None else table
            found = self._book(connection, catalog).all([table]).get(table)
            return None if found is None else found.applied
