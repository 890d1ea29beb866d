"""Whether a run and a database belong together, asked before anything is changed (SEMANTICS 27)."""

from __future__ import annotations

import uuid

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.format import readable
from walrelay.destinations.holdings import Holding, writer_of
from walrelay.destinations.keepers import begins_anew, kept_by
from walrelay.destinations.places import other_source
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import Connection, rows
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.failures import OwnSourceError, TargetReadOnlyError, TargetRightsError
from walrelay.destinations.postgres.places import ELSEWHERE, WHERE, TargetPlaces
from walrelay.errors import DestinationError, OtherDestinationError
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import Ready, SyncDone
from walrelay.postgres.identity import source_id

OLDEST_VERSION = 140_000
_RIGHTS = """
SELECT pg_catalog.current_database()::text, current_user::text,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY'),
    pg_catalog.to_regnamespace('_walrelay') IS NOT NULL,
    pg_catalog.pg_is_in_recovery()
"""
_SCHEMAS = """
SELECT n.nspname::text, pg_catalog.has_schema_privilege(n.oid, 'CREATE') AND
    pg_catalog.has_schema_privilege(n.oid, 'USAGE')
FROM pg_catalog.pg_namespace n WHERE n.nspname = ANY (%s)
"""


def refuse_unusable(connection: Connection, context: DestinationContext, where: str) -> None:
    """Raise when nothing can come of writing to this database; changes nothing."""
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        raise DestinationError(
            f"the destination is Postgres {version // 10_000}; 14 is the oldest supported", hint="Upgrade the server."
        )
    ((database, user, may_create, may_stage, is_made, is_standby),) = rows(connection, _RIGHTS)
    if is_standby:
        raise TargetReadOnlyError(f"the destination {where} is a standby, which takes no writes")
    mine = source_id(connection)
    if mine is not None and mine == context.source_id:
        raise OwnSourceError(f"the destination {where} is the very database that the rows come from")
    if not may_stage:
        raise TargetRightsError(
            f"{user} may not make temporary tables in {database}",
            hint=f"GRANT TEMPORARY ON DATABASE {quoted(database)} TO {quoted(user)};",
        )
    wanted = {name.schema for name in context.tables.values()}
    there = dict(rows(connection, _SCHEMAS, ([*wanted, "_walrelay"],)))
    if not may_create and (not is_made or wanted - there.keys()):
        missing = sorted((wanted | {"_walrelay"}) - there.keys())
        raise TargetRightsError(
            f"{user} may not make schemas in {database}, and these are not there: {', '.join(missing)}",
            hint=f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(user)};",
        )
    for name, may_write in sorted(there.items()):
        if not may_write:
            raise TargetRightsError(
                f"{user} may not make tables in the schema {name} of {database}",
                hint=f"GRANT USAGE, CREATE ON SCHEMA {quoted(name)} TO {quoted(user)};",
            )


class Ownership:
    """Asks and answers within the open transaction."""

    def __init__(self, connection: Connection, where: str, context: DestinationContext) -> None:
        self._where = where
        self._context = context
        self._book = TargetBook(connection, writer_of(context))
        self._places = TargetPlaces(connection, self._book)

    def admit(self) -> str:
        """The database's id, when the run may write to it."""
        expected, own = self._context.expected, self._book.database_id()
        if own is not None:
            readable(own, self._where)
        if expected is not None and own is not None and own != expected.id:
            raise OtherDestinationError(
                f"{self._where} is another database than the one that this pipeline keeps current, {expected.place}",
                hint="Give that one; or run again with --begin-anew: the tables are then copied into this one.",
            )
        self._book.create()
        self._refuse_strangers()
        self._book.remember_source()
        self._places.settle()
        own = self._book.database_id()
        if own is None:
            own = uuid.uuid4().hex
            self._book.name_database(own)
        return own

    def _refuse_strangers(self) -> None:
        """Tables that this run would write to, and must not. One that runs already, and was given another table since,
        goes on: that table alone fails, when it is copied."""
        context = self._context
        phases = context.store.get_table_replication_states()
        known = {table for table, phase in phases.items() if isinstance(phase, Ready | SyncDone)}
        for table, name in context.tables.items():
            if not known:
                self.check(table, name)
            for one in self._book.placed(table):
                self._refuse(one, takes_over=table not in known)

    def check(self, table: TableId, name: TableName) -> None:
        """Raise when the table must not be copied to this name."""
        self._places.refuse_strange(name)
        held = self._book.holding(name)
        for one in [*([] if held is None else [held]), *self._book.placed(table)]:
            self._refuse(one)

    def taken_over(self, name: TableName) -> str | None:
        """The pipeline that has kept the table current until now, when this is another one."""
        held = self._book.holding(name)
        before = None if held is None or not self._places.is_there(held.name) else held.pipeline
        return before if before != self._context.pipeline_name else None

    def _refuse(self, held: Holding, *, takes_over: bool = True) -> None:
        context = self._context
        if context.source_id is None or not self._places.is_there(held.name):
            return
        if held.source_id is not None and held.source_id != context.source_id:
            raise other_source(self._book, held.name, held.source_id, WHERE, ELSEWHERE)
        if held.pipeline is None or held.pipeline == context.pipeline_name:
            return
        if not (takes_over and begins_anew(held.pipeline, context)):
            raise kept_by(held.pipeline, held.name, context, place=self._where, elsewhere=ELSEWHERE)
