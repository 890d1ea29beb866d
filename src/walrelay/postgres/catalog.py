"""What is to be copied: the publication's tables, with their columns, types, key and storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from walrelay.config.choices import UnknownTypes
from walrelay.decode.registry import is_known
from walrelay.errors import (
    PublicationEmptyError,
    PublicationMissingError,
    TableMissingError,
    UnsupportedSourceError,
)
from walrelay.model.names import TableId, TableName, quote_name
from walrelay.model.schema import Column, PgType, ReplicaIdentity, TableLeaf, TableSchema
from walrelay.postgres.array_shapes import with_seen_shapes
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement
from walrelay.postgres.types import TypeCatalog

OLDEST_VERSION, LISTS_VERSION = 140_000, 150_000
IDENTITIES: Mapping[str, ReplicaIdentity] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
"""As catalog and stream abbreviate them."""
GENERATED_VERSION = 180_000


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as the publication names it; `columns` and `row_filter` are None where it gives all."""

    id: TableId
    name: TableName
    columns: tuple[str, ...] | None = None
    row_filter: str | None = None
    generated: bool = False
    """Whether generated columns belong to it when `columns` names none."""
    mark: str = ""
    """The publication's, not younger than what this says of it."""


@dataclass(frozen=True, slots=True)
class TableStorage:
    """How large a table is, about."""

    bytes: int
    rows_estimate: int


def check_version(connection: Connection) -> int:
    """The server's version number, refused when we do not know the server's ways."""
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        raise UnsupportedSourceError(
            f"the source is Postgres {version // 10_000}; 14 is the oldest supported",
            hint="Upgrade the server.",
        )
    return version


def check_publication(connection: Connection, publication: str) -> None:
    """Raise when it is not there. Looks at none of its tables, so that nobody's lock on one is waited for."""
    check_version(connection)
    with talking("reading the publication"):
        if connection.execute(statement("publication"), {"publication": publication}).fetchone() is None:
            raise _missing(connection, publication)


def published_tables(connection: Connection, publication: str) -> list[PublishedTable]:
    """The publication's tables, never an empty list: an empty publication is a mistake that says so (SEMANTICS 12)."""
    check_publication(connection, publication)
    mark = publication_mark(connection, publication)
    tables = [replace(one, mark=mark) for one in _published(connection, publication)]
    if not tables:
        raise PublicationEmptyError(
            f"publication {publication} has no tables",
            hint=f"ALTER PUBLICATION {quote_name(publication)} ADD TABLE …; adds one; where it is FOR ALL TABLES, or"
            " for a schema, create a table.",
        )
    return tables


def publication_mark(connection: Connection, publication: str) -> str:
    """Differs once the publication was altered."""
    name = "publication_mark" if connection.info.server_version >= LISTS_VERSION else "publication_mark_14"
    with talking("looking at the publication"):
        row = connection.execute(statement(name), {"publication": publication}).fetchone()
    return str(row.mark) if row is not None else ""


def _published(connection: Connection, publication: str, table: TableId | None = None) -> list[PublishedTable]:
    name = "publication_tables_15" if connection.info.server_version >= LISTS_VERSION else "publication_tables_14"
    with talking("reading the publication"):
        rows = connection.execute(statement(name), {"publication": publication, "table": table}).fetchall()
    return [
        PublishedTable(
            row.id,
            TableName(row.schema, row.name),
            None if row.columns is None else tuple(row.columns),
            row.row_filter,
        )
        for row in rows
    ]


def _missing(connection: Connection, publication: str) -> PublicationMissingError:
    rows = connection.execute("SELECT pubname FROM pg_catalog.pg_publication ORDER BY 1").fetchall()
    known = ", ".join(row.pubname for row in rows)
    hint = f"This database has: {known}." if known else "This database has none."
    return PublicationMissingError(
        f"no such publication: {publication}",
        hint=f"{hint} Create it with CREATE PUBLICATION {quote_name(publication)} FOR TABLE …; or FOR ALL TABLES.",
    )


def storage_of(connection: Connection, tables: list[TableId]) -> dict[TableId, TableStorage]:
    """Size and estimated rows of each table, with all its partitions."""
    with talking("reading table sizes"):
        rows = connection.execute(statement("storage"), {"tables": tables}).fetchall()
    return {row.id: TableStorage(row.bytes, row.rows_estimate) for row in rows}


def find_table(connection: Connection, name: TableName) -> PublishedTable:
    """A table by name, outside of any publication: all its columns, all its rows."""
    check_version(connection)
    with talking("looking up the table"):
        row = connection.execute(
            "SELECT c.oid::int8 AS id FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'm')",
            (name.schema, name.name),
        ).fetchone()
    if row is None:
        raise TableMissingError(f"no such table: {name}")
    return PublishedTable(row.id, name, generated=True)


def read_schema(
    connection: Connection,
    table: PublishedTable,
    unknown_types: UnknownTypes = "bytes",
    *,
    publication: str | None = None,
) -> TableSchema:
    """The table's shape as it is now. Call it inside the snapshot that the copy reads.

    With a publication also what that gives of it now, under the name that was looked up: a column that was added since
    would be left out of the copy, and rows of an older filter would be taken, of which no change tells again.
    """
    with talking(f"reading the columns of {table.name}"):
        rows = connection.execute(statement("columns"), {"table": table.id}).fetchall()
        leaves = connection.execute(statement("leaves"), {"table": table.id}).fetchall()
    if not rows and not leaves:
        raise TableMissingError(f"{table.name} no longer exists")
    if publication is not None:
        table = _published_now(connection, publication, table, {row.name for row in rows})
    types = TypeCatalog(connection, (row.type for row in rows))
    sends_generated = connection.info.server_version >= GENERATED_VERSION
    published = [row for row in rows if _is_published(row, table, sends_generated)]
    columns = tuple(_column(row, types, unknown_types) for row in published)
    columns = with_seen_shapes(connection, columns, [TableName(leaf.schema, leaf.name) for leaf in leaves])
    foreign = [TableName(leaf.schema, leaf.name) for leaf in leaves if leaf.kind == "f"]
    if foreign:
        raise UnsupportedSourceError(
            f"{table.name} has a foreign table as a partition: {foreign[0]}",
            hint="Detach it, or publish the other partitions alone.",
        )
    names = [row.name for row in published]
    primary_key = _whole(((row.key_place, row.name) for row in rows), names)
    identity = IDENTITIES[rows[0].identity] if rows else "default"
    named_by: dict[ReplicaIdentity, tuple[str, ...]] = {
        "default": primary_key,
        "index": _whole(((row.identity_place, row.name) for row in rows), names),
        "full": tuple(names),
        "nothing": (),
    }
    return TableSchema(
        id=table.id,
        name=table.name,
        columns=columns,
        primary_key=primary_key,
        identity=identity,
        identity_columns=named_by[identity],
        row_filter=table.row_filter,
        leaves=tuple(
            TableLeaf(leaf.id, TableName(leaf.schema, leaf.name), leaf.bytes, leaf.stored_bytes) for leaf in leaves
        ),
    )


def _whole(places: Iterable[tuple[int | None, str]], published: Collection[str]) -> tuple[str, ...]:
    """The columns of an index, in its order; none when not all of them are published."""
    names = tuple(name for _, name in sorted((place, name) for place, name in places if place is not None))
    return names if set(names) <= set(published) else ()


def _published_now(
    connection: Connection, publication: str, table: PublishedTable, columns: set[str]
) -> PublishedTable:
    """What the publication gives of the table. One that has another name by now was locked, and would be copied, under
    a name that may be another table's."""
    with talking(f"looking up {table.name}"):
        row = connection.execute(
            "SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::oid",
            (table.id,),
        ).fetchone()
    if row is None or TableName(row.schema, row.name) != table.name:
        raise TableMissingError(f"{table.name} has another name by now", context={"table_id": table.id})
    # Among 500 tables to ask the publication takes a new session 20 ms: not when it gave all columns and still does.
    gives_all = table.columns is None or columns == set(table.columns)
    if gives_all and publication_mark(connection, publication) == table.mark:
        return table
    found = _published(connection, publication, table.id)
    if not found:
        raise TableMissingError(f"{table.name} has left the publication", context={"table": str(table.name)})
    return found[0]


def _is_published(row: Any, table: PublishedTable, sends_generated: bool) -> bool:
    """As the stream will have it: before Postgres 18 it never sends a generated column, whatever the catalog lists."""
    if table.generated:
        return True
    if row.generated and not sends_generated:
        return False
    return row.name in table.columns if table.columns is not None else not row.generated


def _column(row: Any, types: TypeCatalog, unknown_types: UnknownTypes) -> Column:
    type_: PgType = types.resolve(row.type, row.modifier, row.dimensions, row.display)
    as_text = not type_.has_binary or (unknown_types == "text" and not is_known(type_))
    return Column(row.name, type_, nullable=not row.not_null, attnum=row.attnum, as_text=as_text, filled=row.filled)
