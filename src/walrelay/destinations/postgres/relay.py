"""A copy's bytes, passed from the source's socket to the target's within a task: nothing is decoded.

Each range is one transaction, which also says that the range is there. So one that a task has brought whose end nobody
heard of is not brought again, and one by a task of an attempt that was given up finds its table gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walrelay.destinations.postgres.client import Connection, Server, rows, run
from walrelay.destinations.postgres.dialect import ENDLESS_INTERVALS
from walrelay.destinations.postgres.failures import naming, writing
from walrelay.destinations.postgres.load import Building
from walrelay.destinations.postgres.places import place
from walrelay.failpoints import hit
from walrelay.model.schema import PgType, TableSchema

FIRST_OWN_OID = 16_384
"""Below are the types that every server has, under the same numbers."""
PLAIN = frozenset({
    "bool", "int2", "int4", "int8", "oid", "xid8", "float4", "float8", "numeric", "money", "text", "varchar",
    "bpchar", "char", "name", "bytea", "date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid",
    "json", "jsonb", "inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "point", "lseg", "box", "path",
    "polygon", "line", "circle", "pg_lsn", "tsvector",
})  # fmt: skip
"""Of Postgres' own types those whose bytes every version reads as it writes them, whatever the value. Not xml, which is
read anew by whoever takes it; not tsquery, of which a server refuses some that it has written."""


@dataclass(frozen=True)
class PostgresRelay:
    """`building` takes the rows."""

    server: Server
    building: Building

    def take(self, part: str, chunks: Iterable[memoryview | bytes]) -> int:
        schema, doing = self.building.schema, f"copying {self.building.schema.name}"
        connection = self.server.connect(f"walrelay {doing}")
        try:
            with writing(doing), naming(schema):
                return self._take(connection, part, chunks)
        finally:
            connection.close()

    def _take(self, connection: Connection, part: str, chunks: Iterable[memoryview | bytes]) -> int:
        """When it fails, closing the connection rolls back."""
        run(connection, "BEGIN")
        with connection.cursor() as cursor:
            statement = f"COPY {place(self.building.name)} FROM STDIN (FORMAT binary)"
            with cursor.copy(statement.encode()) as copy:
                for chunk in chunks:
                    copy.write(chunk)
            count = cursor.rowcount
        hit("destination.piece")
        marked = f"INSERT INTO {place(self.building.parts)} VALUES (%s, %s) ON CONFLICT DO NOTHING"
        is_ours = run(connection, marked, (part, count)).rowcount == 1
        run(connection, "COMMIT" if is_ours else "ROLLBACK")
        if not is_ours:
            question = f"SELECT rows FROM {place(self.building.parts)} WHERE part = %s"
            ((count,),) = rows(connection, question, (part,))
        return count


def passes(schema: TableSchema, source: int, target: int) -> bool:
    """Whether the bytes of every column mean the same to both servers, of these versions."""
    knows_endless = target >= ENDLESS_INTERVALS or source < ENDLESS_INTERVALS
    return bool(schema.columns) and all(
        not column.as_text and _passes(column.type, knows_endless) for column in schema.columns
    )


def _passes(type_: PgType, knows_endless: bool, *, is_named: bool = False) -> bool:
    """`is_named`: its number stands in the bytes, which is another one at the target for all but Postgres' own."""
    is_own = type_.schema == "pg_catalog" and 0 < type_.oid < FIRST_OWN_OID
    if is_named and not is_own:
        return False
    match type_.kind:
        case "enum":
            return True
        case "range" | "multirange":
            return type_.element is not None and _passes(type_.element, knows_endless)
        case "array":
            return is_own and type_.element is not None and _passes(type_.element, knows_endless, is_named=True)
        case "composite" | "vector_array":
            # The bytes of the one name its attributes' types, domains too; an empty one of the other is refused.
            return False
        case "base":
            return is_own and type_.name in PLAIN and (knows_endless or type_.name != "interval")
