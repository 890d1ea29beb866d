"""Tables in another Postgres database: copies replace them, changes keep all of them current in one transaction."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from walrelay.changes.batch import EventBatch
from walrelay.changes.dialect import Dialect
from walrelay.changes.rows import TableRows
from walrelay.changes.shapes import held_columns
from walrelay.config.settings import duration
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.holdings import Shape, writer_of
from walrelay.destinations.notices import taken_over
from walrelay.destinations.postgres.apply import Application
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import LOCK_TIMEOUT, Connection, Server, Sessions, run
from walrelay.destinations.postgres.dialect import DIALECT, target_of
from walrelay.destinations.postgres.failures import naming
from walrelay.destinations.postgres.load import Building, Loader, drop_unfinished
from walrelay.destinations.postgres.owner import Ownership, refuse_unusable
from walrelay.destinations.postgres.piece import PIECE_ROWS
from walrelay.destinations.postgres.places import TargetPlaces
from walrelay.destinations.postgres.relay import PostgresRelay, passes
from walrelay.destinations.postgres.stages import Stages
from walrelay.destinations.postgres.types import TargetTypes
from walrelay.destinations.postgres.verify import TargetLook
from walrelay.destinations.verifying import Look
from walrelay.errors import ConfigError, DestinationError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.postgres.source import PostgresSource

CONNECTIONS = 4
"""By which a copy is loaded."""
SMALL_BYTES = 4 * 1024 * 1024
"""Landed files of up to this are loaded at once: some tenths of a second. Larger tables come by bytes, if they can."""


class PostgresDestination(SimpleDestination):
    """A Postgres database. Tables have the names, columns, types and keys that they have in the source; the schema
    `_walrelay` says whose they are and how far they have come."""

    name = "postgres"
    dialect: Dialect = DIALECT

    def __init__(
        self,
        url: str,
        *,
        connections: int = CONNECTIONS,
        lock_timeout: timedelta = LOCK_TIMEOUT,
        piece_rows: int = PIECE_ROWS,
        relay_from: int = SMALL_BYTES,
    ) -> None:
        if connections < 1:
            raise ConfigError(f"connections is {connections}", hint="A copy is loaded by at least one.")
        self.capabilities = Capabilities(
            kind="tables", takes_changes=True, lane="files", keeps_progress=True, atomic_across_tables=True
        )
        self._server = Server(_source(url), lock_timeout)
        self._connections = connections
        self._piece_rows = piece_rows
        self._relay_from = relay_from
        self._relayed: dict[TableId, Building] = {}
        """What tasks fill, or have filled."""
        self._context: DestinationContext | None = None
        self._open: Sessions | None = None
        self._stages = Stages()
        self._types = TargetTypes(lambda _: None)
        self._loads: dict[TableId, threading.Lock] = {}
        self._id: str | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """A URL of libpq's; `connections` and `lock_timeout` among its parameters are ours."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        ours = {name: value for name, value in options if name in ("connections", "lock_timeout")}
        theirs = urlencode([pair for pair in options if pair[0] not in ours])
        connections = ours.get("connections", str(CONNECTIONS))
        if not connections.isdigit():
            raise ConfigError("connections is not a number", hint="Write connections=4, or leave it out.")
        patience = duration("lock_timeout", ours["lock_timeout"]) if "lock_timeout" in ours else LOCK_TIMEOUT
        return cls(urlunsplit(parts._replace(query=theirs)), connections=int(connections), lock_timeout=patience)

    # --------------------------------------------------------------------------------------------------------- life

    def startup(self, context: DestinationContext) -> None:
        self._context = context
        self._open = Sessions(self._server, context.stopping)
        self._types = TargetTypes(context.enum_labels)
        try:
            with self._sessions.main() as connection:
                refuse_unusable(connection, context, self._server.location)
                target = target_of(connection.info.server_version)
                self.dialect = DIALECT.for_target(target)
                with connection.transaction():
                    self._id = Ownership(connection, self._server.location, context).admit()
                    drop_unfinished(connection, context.pipeline_id)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        opened, self._open = self._open, None
        self._context = None
        left, self._relayed = list(self._relayed.values()), {}
        if opened is not None:
            with suppress(Exception):  # the next run does it
                for building in left:
                    with opened.main() as connection:
                        building.drop(connection)
            opened.close()

    def identity(self) -> Identity | None:
        return None if self._id is None else Identity(self._id, self._server.location)

    @property
    def _sessions(self) -> Sessions:
        assert self._open is not None, "startup() comes first"
        return self._open

    @property
    def _run(self) -> DestinationContext:
        assert self._context is not None, "startup() comes first"
        return self._context

    def _book(self, connection: Connection) -> TargetBook:
        return TargetBook(connection, writer_of(self._run))

    # ------------------------------------------------------------------------------------------------------- copies

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied, and what an attempt has left. The copy replaces the table; until then the old rows
        stay readable."""
        with self._alone(schema), self._sessions.main() as connection, naming(schema), connection.transaction():
            ownership = Ownership(connection, self._server.location, self._run)
            ownership.check(schema.id, schema.name)
            before = ownership.taken_over(schema.name)
            if before is not None:
                self._run.notify(taken_over(schema.name, before))
            self._building(connection, schema, made=False).drop(connection)
            self._book(connection).forget(schema.id)

    def relay(self, schema: TableSchema, version: int) -> PostgresRelay | None:
        if sum(leaf.stored_bytes for leaf in schema.leaves) < self._relay_from:
            return None
        with self._alone(schema), self._sessions.main() as connection, naming(schema):
            if not passes(schema, version, connection.info.server_version):
                return None
            self._make_types_anew(connection, schema)
            building = replace(self._building(connection, schema), attempt=uuid.uuid4().hex[:12])
            with connection.transaction():
                building.begin(connection)
            self._relayed[schema.id] = building
            return PostgresRelay(self._server, building)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        with self._alone(schema), naming(schema):
            if rows.relayed:
                self._take_relayed(schema, rows)
            elif sum(file.bytes for file in rows.files) <= SMALL_BYTES:
                self._write_at_once(schema, rows)
            else:
                self._write_beside(schema, rows)
        return WriteResult(durable=True, rows=rows.rows_total)

    def _write_at_once(self, schema: TableSchema, rows: TableRows) -> None:
        """On the connection that is there: with hundreds of small tables, others would take most of the time."""
        with self._sessions.main() as connection:
            self._make_types_anew(connection, schema)
            with connection.transaction():
                building = self._building(connection, schema)
                building.begin(connection)
                count = Loader(self._sessions, self._run, 1).load_small(connection, building, rows)
                building.finish(connection)
                self._put_in_place(connection, building, rows, count)
        hit("destination.committed")

    def _write_beside(self, schema: TableSchema, rows: TableRows) -> None:
        """While it is loaded, changes of other tables are taken."""
        with self._sessions.main() as connection:
            self._make_types_anew(connection, schema)
            building = self._building(connection, schema)
            with connection.transaction():
                building.begin(connection)
        with self._dropped_if_failed(building):
            count = Loader(self._sessions, self._run, self._connections).load(building, rows)
            self._index(building)
            with self._sessions.main() as connection, connection.transaction():
                self._put_in_place(connection, building, rows, count)
        hit("destination.committed")

    def _take_relayed(self, schema: TableSchema, rows: TableRows) -> None:
        """Tasks have filled it."""
        building = self._relayed.pop(schema.id)
        with self._dropped_if_failed(building):
            self._index(building)
            with self._sessions.main() as connection, connection.transaction():
                self._put_in_place(connection, building, rows, building.brought(connection))
        hit("destination.committed")

    def _index(self, building: Building) -> None:
        with self._sessions.another(f"indexing {building.schema.name}") as connection:
            building.finish(connection)

    @contextmanager
    def _dropped_if_failed(self, building: Building) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(Exception), self._sessions.main() as connection:
                building.drop(connection)
            raise

    def _alone(self, schema: TableSchema) -> threading.Lock:
        """Two copies of one table would build on each other."""
        return self._loads.setdefault(schema.id, threading.Lock())

    def _building(self, connection: Connection, schema: TableSchema, *, made: bool = True) -> Building:
        columns = held_columns(schema.columns, self._types.dialect(connection)) if made else ()
        return Building(schema, columns, self._run.pipeline_id)

    def _make_types_anew(self, connection: Connection, schema: TableSchema) -> None:
        self._types.forget()
        self._types.make(connection, schema, replaces=True)

    def _put_in_place(self, connection: Connection, building: Building, rows: TableRows, count: int) -> None:
        """Within a transaction."""
        schema, book = building.schema, self._book(connection)
        if count != rows.rows_total:
            raise DestinationError(
                f"{schema.name} took {count} of {rows.rows_total} rows",
                hint="Nothing of this copy was kept. `walrelay resync` copies the table again.",
            )
        book.progress([schema.id], lock=True)
        Ownership(connection, self._server.location, self._run).check(schema.id, schema.name)
        TargetPlaces(connection, book).make_room_for_copy(schema.id, schema.name)
        building.put_in_place(connection)
        book.copied(schema, Shape(schema.name, building.columns, rows.snapshot_lsn or Lsn(0), 0), count)
        hit("destination.before_commit")

    # ------------------------------------------------------------------------------------------------------ changes

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Everything of the batch that is new, with the position reached, in one transaction."""
        with self._sessions.main() as connection:
            self._make_types(connection, batch)
            self._stages.begin(self._sessions.generation)
            try:
                with connection.transaction():
                    application = Application(
                        connection,
                        batch,
                        self._book(connection),
                        self._types,
                        self._stages,
                        self.dialect.target,
                        self._run.settings.special_values,
                        self._piece_rows,
                    )
                    count = application.run()
                    hit("destination.before_commit")
            except BaseException:
                self._stages.rolled_back()
                raise
            hit("destination.committed")
        return WriteResult(durable=True, rows=count, treated=application.treated)

    def _make_types(self, connection: Connection, batch: EventBatch) -> None:
        """Types that tables of the batch need, before its transaction: a label of an enum cannot be used in the one
        that adds it."""
        shown = [version for part in batch.tables() for version in part.versions]
        for version in [*shown, *batch.shapes]:
            with naming(version.schema):
                self._types.make(connection, version.schema, replaces=False)

    @contextmanager
    def looking(self, context: DestinationContext, *, writing: bool = False) -> Iterator[Look]:
        """As `Verifiable` wants it, on a connection of its own. One that writes keeps changes out while it does."""
        sessions = Sessions(self._server, context.stopping)
        with sessions.another("verify") as connection:
            self.dialect = DIALECT.for_target(target_of(connection.info.server_version))
            level = "READ COMMITTED" if writing else "REPEATABLE READ READ ONLY"
            with connection.transaction():
                run(connection, f"SET TRANSACTION ISOLATION LEVEL {level}")
                if writing:
                    run(connection, "LOCK TABLE _walrelay.tables IN EXCLUSIVE MODE")
                yield TargetLook(connection, writer_of(context))

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table, or all tables together, hold every change; None after a copy, until changes came."""
        with self._sessions.main() as connection:
            book = self._book(connection)
            if table is None:
                return book.whole()
            found = book.progress([table]).get(table)
            return None if found is None else found.applied


def _source(url: str) -> PostgresSource:
    try:
        return PostgresSource(url)
    except ConfigError as error:
        raise ConfigError(
            error.message.replace("the source's URL", "the destination's URL"), hint=error.hint
        ) from error
