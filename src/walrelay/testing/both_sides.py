"""A second opinion on whether a DuckDB file holds what a publication gives: both sides are fetched and compared here.

It shares no code with the product: tables, columns and row filters come from `pg_publication_tables`, the types that
DuckDB should have from a list of its own, and the rows are fetched by psycopg and duckdb and compared as sorted text.
Made for small tables of a few hundred rows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.types.string import TextLoader

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SHOWN = 2
_AS_TEXT = ("json", "jsonb", "inet", "cidr")
"""Types of which psycopg would make more than text."""

_PUBLISHED = """
    SELECT p.schemaname::text, p.tablename::text, p.attnames::text[], p.rowfilter, c.oid::int8,
           c.relkind = 'p' AS is_partitioned
    FROM pg_publication_tables p
    JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    WHERE p.pubname = %s ORDER BY 1, 2
"""
_COLUMNS = """
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typtype::text, t.typrelid::int8
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PLAIN_TYPES = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "oid": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "text": "VARCHAR",
    "character varying": "VARCHAR",
    "character": "VARCHAR",
    "numeric": "VARCHAR",
    "json": "VARCHAR",
    "jsonb": "VARCHAR",
    "inet": "VARCHAR",
    "uuid": "UUID",
    "bytea": "BLOB",
    "date": "DATE",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
}


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as the publication gives it now."""

    name: str
    oid: int
    schema: str
    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """As DuckDB should have them."""
    row_filter: str | None
    is_partitioned: bool


def differences(url: str, publication: str, file: str | os.PathLike[str]) -> dict[str, list[str]]:
    """What differs, by table of the publication; an empty list where nothing does. The source must be at rest."""
    import duckdb

    with source_at_one_moment(url) as source, duckdb.connect(str(Path(file)), read_only=True) as copy:
        return {table.name: _compare(source, copy, table) for table in published(source, publication)}


@contextmanager
def source_at_one_moment(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name in _AS_TEXT:
            connection.adapters.register_loader(name, TextLoader)
        yield connection


def published(source: psycopg.Connection[Any], publication: str) -> list[SourceTable]:
    """The publication's tables, with what it gives of them."""
    found = []
    for schema, table, attributes, row_filter, oid, is_partitioned in source.execute(_PUBLISHED, (publication,)):
        all_columns = source.execute(_COLUMNS, (oid,)).fetchall()
        wanted = [column for column in all_columns if column[0] in attributes]
        found.append(
            SourceTable(
                f"{schema}.{table}",
                oid,
                schema,
                table,
                tuple(name for name, *_ in wanted),
                tuple(_duckdb_type(source, *rest) for _, *rest in wanted),
                row_filter,
                is_partitioned,
            )
        )
    return found


def _duckdb_type(source: psycopg.Connection[Any], printed: str, kind: str, composite: int) -> str:
    """What DuckDB should have for a type that Postgres prints so."""
    if printed.endswith("[]"):
        return _duckdb_type(source, printed.removesuffix("[]"), kind, composite) + "[]"
    if kind == "e":
        return "VARCHAR"
    if kind == "c":
        parts = source.execute(_COLUMNS, (composite,)).fetchall()
        return f"STRUCT({', '.join(f'{name} {_duckdb_type(source, *rest)}' for name, *rest in parts)})"
    if scaled := re.fullmatch(r"numeric\((\d+),(\d+)\)", printed):
        return f"DECIMAL({scaled[1]},{scaled[2]})"
    return _PLAIN_TYPES[re.sub(r"\(\d+\)", "", printed)]


def _compare(source: psycopg.Connection[Any], copy: DuckDBPyConnection, table: SourceTable) -> list[str]:
    columns = copy.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?"
        " AND database_name = current_database() ORDER BY column_index",
        [table.schema, table.table],
    ).fetchall()
    if not columns:
        return ["missing in the destination"]
    names = tuple(name for name, _ in columns)
    if names != table.columns:
        return [f"has columns {', '.join(names)}; the source {', '.join(table.columns)}"]
    found = [
        f"column {name} is {type_}; it should be {wanted}"
        for (name, type_), wanted in zip(columns, table.types, strict=True)
        if type_.replace('"', "") != wanted
    ]
    there, here = _source_rows(source, table), _copy_rows(copy, table)
    if there != here:
        found.append(_described(table, there, here))
    return found


def _source_rows(source: psycopg.Connection[Any], table: SourceTable) -> Counter[tuple[str | None, ...]]:
    name = sql.Identifier(table.schema, table.table)
    question = sql.SQL("SELECT {} FROM {}{}").format(
        sql.SQL(", ").join(map(sql.Identifier, table.columns)),
        sql.SQL("" if table.is_partitioned else "ONLY "),
        name,
    )
    if table.row_filter is not None:
        question += sql.SQL(" WHERE ") + sql.SQL(table.row_filter)  # printed by Postgres
    return Counter(tuple(map(_text, row)) for row in source.execute(question))


def _copy_rows(copy: DuckDBPyConnection, table: SourceTable) -> Counter[tuple[str | None, ...]]:
    question = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(map(sql.Identifier, table.columns)), sql.Identifier(table.schema, table.table)
    )
    return Counter(tuple(map(_text, row)) for row in copy.execute(question.as_string(None)).fetchall())


def _text(value: Any) -> str | None:
    """A value of either driver, written alike."""
    match value:
        case None:
            return None
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
        case date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case dict():  # a composite, which psycopg gives as Postgres prints it
            return "(" + ",".join(_text(part) or "" for part in value.values()) + ")"
        case list():
            return repr([_text(part) for part in value])
        case _:
            return str(value)


def _described(
    table: SourceTable, there: Counter[tuple[str | None, ...]], here: Counter[tuple[str | None, ...]]
) -> str:
    words = f"{there.total():,} rows in the source, {here.total():,} in the destination"
    for kind, rows in (("lacking", there - here), ("too many", here - there)):
        if rows:
            shown = sorted(rows, key=str)[:_SHOWN]
            words += f"; {rows.total():,} {kind}, such as {', '.join(map(_shortened, shown))}"
    return f"({', '.join(table.columns)}) {words}"


def _shortened(row: tuple[str | None, ...]) -> str:
    return str(tuple(value if value is None or len(value) < 40 else value[:37] + "…" for value in row))
