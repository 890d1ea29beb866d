"""What a Relation message leaves out, from the catalog: types down to their parts, the primary key, attribute numbers.

The catalog speaks of now, the message of then. Columns are matched by attribute number where that is known, else by
name; a column that has changed since keeps what the message says, and a type that is gone arrives as bytes.
"""

from __future__ import annotations

from typing import Any

from walrelay.errors import QueryError, RightsError, TableMissingError
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.postgres.array_shapes import with_seen_shapes
from walrelay.postgres.catalog import IDENTITIES
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement
from walrelay.postgres.types import TypeCatalog
from walrelay.wire.pgoutput import Relation, RelationColumn


def describe_relation(connection: Connection, relation: Relation, numbers: tuple[int, ...] | None) -> TableSchema:
    """The table's shape as the message has it, completed. `numbers` are the attribute numbers of the message's columns,
    None when nobody knows them: then the columns have none."""
    with talking(f"looking up {relation.schema}.{relation.name}"):
        rows = connection.execute(statement("columns"), {"table": relation.id}).fetchall()
        leaves = connection.execute(statement("leaves"), {"table": relation.id}).fetchall() if rows else []
    types = TypeCatalog(connection, (column.type for column in relation.columns))
    now = {row.name: row for row in rows}
    by_number = {row.attnum: row for row in rows}
    found = [now.get(one.name) for one in relation.columns] if numbers is None else [by_number.get(n) for n in numbers]
    columns = tuple(
        _column(column, row, number, types)
        for column, row, number in zip(relation.columns, found, numbers or [0] * len(found), strict=True)
    )
    columns = _with_shapes(connection, columns, now, [TableName(leaf.schema, leaf.name) for leaf in leaves])
    then = {row.attnum: column.name for column, row in zip(columns, found, strict=True) if row is not None}
    keyed = [
        then.get(row.attnum, row.name)
        for row in sorted(rows, key=lambda row: row.key_place or 0)
        if row.key_place is not None
    ]
    names = {column.name for column in columns}
    marked = tuple(column.name for column in relation.columns if column.key)
    if relation.identity == "d" and set(marked) != set(keyed):
        keyed = list(marked)  # the key has changed since
    return TableSchema(
        id=relation.id,
        name=TableName(relation.schema, relation.name),
        columns=columns,
        primary_key=tuple(keyed) if names.issuperset(keyed) else (),
        identity=IDENTITIES[relation.identity],
        identity_columns=tuple(column.name for column in columns) if relation.identity == "f" else marked,
    )


def _column(column: RelationColumn, row: Any | None, number: int, types: TypeCatalog) -> Column:
    same = row is not None and row.type == column.type
    dimensions = max(row.dimensions, 1) if row is not None and same else 1
    try:
        type_ = types.resolve(column.type, column.modifier, dimensions, row.display if row is not None and same else "")
    except KeyError:
        type_ = PgType(column.type, f"type {column.type}", schema="", display="a type that was dropped")
    return Column(
        column.name,
        type_,
        nullable=not (row is not None and same and row.not_null),
        attnum=number,
        as_text=not type_.has_binary,
        filled=row is not None and same and row.filled,
    )


def _with_shapes(
    connection: Connection, columns: tuple[Column, ...], now: dict[str, Any], leaves: list[TableName]
) -> tuple[Column, ...]:
    """Arrays as deep as the copy will take them; a role that may not read the table goes by the declaration."""
    if any(column.name not in now for column in columns if column.type.kind == "array"):
        return columns
    try:
        return with_seen_shapes(connection, columns, leaves)
    except (RightsError, TableMissingError, QueryError):
        return columns
