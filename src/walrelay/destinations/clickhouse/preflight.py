"""What is asked of a server before anything is read: its version, its database, and what the user may do there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import literal, quoted
from walrelay.destinations.clickhouse.values import NARROW, WIDE, Years
from walrelay.errors import DestinationError, DestinationNotWritableError, DestinationRightsError
from walrelay.model.schema import PgType, TableSchema

OLDEST = (24, 8)
RIGHTS = (
    "SELECT", "INSERT", "CREATE TABLE", "CREATE VIEW", "DROP TABLE", "DROP VIEW", "ALTER TABLE", "OPTIMIZE",
)  # fmt: skip
"""On the database. `ALTER TABLE` has columns in it, and moving partitions."""
ENGINES = ("Atomic", "Shared", "Replicated")
"""Of a database, in which a view takes another's place in one step."""


@dataclass(frozen=True, slots=True)
class Able:
    """What the server can do."""

    years: Years
    has_nullable_tuples: bool

    def refuse_tuples(self, schema: TableSchema) -> None:
        """A composite, a range or an interval is a tuple, and may be NULL."""
        if self.has_nullable_tuples:
            return
        names = [one.name for one in schema.columns if not one.as_text and _holds_tuple(one.type)]
        if names:
            raise DestinationError(
                f"this ClickHouse has no tuple that may be NULL, which {', '.join(names)} of {schema.name} would be",
                hint="Use ClickHouse 26 or newer; or leave these columns out of the publication's column list.",
                context={"table": str(schema.name), "table_id": schema.id},
            )


def _holds_tuple(type_: PgType) -> bool:
    if type_.kind in {"composite", "range", "multirange"} or type_.name == "interval":
        return True
    return type_.element is not None and _holds_tuple(type_.element)


def examine(server: Server) -> Able:
    """Raises what stands in the way, with what to do."""
    _refuse_old(server)
    _refuse_database(server)
    _refuse_rights(server)
    # The last year that it has tells which of the two ranges: others become the nearest that it has.
    is_wide = server.value("SELECT toInt32(toDate32('9999-12-31')) AS day") == WIDE.last
    tuples = server.rows("SELECT name FROM system.settings WHERE name = 'allow_experimental_nullable_tuple_type'")
    return Able(WIDE if is_wide else NARROW, bool(tuples))


def _refuse_old(server: Server) -> None:
    found = re.match(r"(\d+)\.(\d+)", server.version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise DestinationError(
            f"{server.address} is ClickHouse {server.version}, which is too old",
            hint=f"Use ClickHouse {OLDEST[0]}.{OLDEST[1]} or newer.",
        )


def _refuse_database(server: Server) -> None:
    database = server.address.database
    found = server.rows(f"SELECT engine FROM system.databases WHERE name = {literal(database)}")
    if not found:
        raise DestinationNotWritableError(
            f"there is no database {database} in {server.address}, or its user may not see it",
            hint=f"CREATE DATABASE {quoted(database)}",
        )
    engine = found[0][0].decode()
    if engine not in ENGINES:
        raise DestinationNotWritableError(
            f"the database {database} has the engine {engine}, in which no view can be replaced in one step",
            hint=f"Choose another one: CREATE DATABASE other ENGINE = {ENGINES[0]}",
        )


def _refuse_rights(server: Server) -> None:
    database = quoted(server.address.database)
    missing = [
        right for right in RIGHTS if not server.value(f"CHECK GRANT {right} ON {database}.*", doing="asking for rights")
    ]
    if missing:
        raise DestinationRightsError(
            f"the user {server.address.user} may not do all that is needed in {server.address}: {', '.join(missing)}",
            hint=f"GRANT {', '.join(missing)} ON {database}.* TO {quoted(server.address.user)}",
        )
