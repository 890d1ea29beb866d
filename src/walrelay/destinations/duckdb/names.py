"""Names that Postgres tells apart and DuckDB does not: it ignores the case of ASCII letters, also between quotes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from walrelay.errors import NameClashError
from walrelay.model.names import TableName
from walrelay.model.schema import PgType, TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def folded(*names: str) -> tuple[bytes, ...]:
    """What DuckDB compares."""
    return tuple(name.encode().lower() for name in names)


def refuse_twins(connection: DuckDBPyConnection, schema: TableSchema) -> None:
    """Raise when DuckDB would take two columns, two attributes of a type or two tables for one, and mix them up."""
    _refuse_twin_columns(f"the table {schema.name} has columns", (column.name for column in schema.columns))
    for column in schema.columns:
        if not column.as_text:
            _refuse_twin_attributes(column.type)
    ours = folded(schema.name.schema, schema.name.name)
    copied = connection.execute(
        "SELECT schema_name, table_name, source_oid FROM _walrelay.tables"
        " WHERE lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
        [schema.name.schema, schema.name.name],
    ).fetchall()
    for other_schema, other_name, oid in copied:
        other = TableName(other_schema, other_name)
        # Under the same oid it is this table, renamed since.
        is_twin = folded(other_schema, other_name) == ours and other != schema.name and oid != schema.id
        if is_twin and _is_there(connection, ours):
            raise NameClashError(
                f"DuckDB cannot tell {schema.name} from {other}, which was copied before",
                hint="Rename one of them, or leave it out of the publication; if the other one is gone, drop its copy.",
            )


def _is_there(connection: DuckDBPyConnection, name: tuple[bytes, ...]) -> bool:
    there = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall()
    return any(folded(*place) == name for place in there)


def _refuse_twin_columns(owner: str, names: Iterable[str]) -> None:
    seen: dict[tuple[bytes, ...], str] = {}
    for name in names:
        twin = seen.setdefault(folded(name), name)
        if twin != name:
            raise NameClashError(
                f"{owner} that DuckDB cannot tell apart: {twin}, {name}",
                hint="Rename one of them, or leave it out of the publication's column list.",
            )


def _refuse_twin_attributes(type_: PgType) -> None:
    _refuse_twin_columns(f"the type {type_} has attributes", (field.name for field in type_.fields))
    parts = [field.type for field in type_.fields] + ([type_.element] if type_.element else [])
    for part in parts:
        _refuse_twin_attributes(part)
