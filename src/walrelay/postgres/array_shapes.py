"""How many dimensions a table's arrays really have.

Postgres does not enforce the declared number, and forgets it easily: a dump and restore turns `int[][]` into `int[]`.
Lists of a fixed depth have to be right for the values, so a look at the first rows decides; what differs from that
further on is a special value, counted (docs/decisions/0004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psycopg import sql

from walrelay.model.names import TableName
from walrelay.model.schema import Column
from walrelay.postgres.connection import Connection, talking

ROWS = 10_000
"""Looked at in each relation, from its start: enough to know a column by, and nothing beside the copy itself."""
RELATIONS = 8


def with_seen_shapes(
    connection: Connection, columns: tuple[Column, ...], relations: Sequence[TableName]
) -> tuple[Column, ...]:
    """The columns, arrays with the number of dimensions that most of the first values have."""
    arrays = [column.name for column in columns if column.type.kind == "array" and not column.as_text]
    seen: dict[str, int] = {}
    for relation in relations[:RELATIONS]:
        missing = [name for name in arrays if name not in seen]
        if not missing:
            break
        seen |= _look(connection, relation, missing)
    return tuple(
        replace(column, type=replace(column.type, dimensions=seen.get(column.name, column.type.dimensions)))
        if column.name in arrays
        else column
        for column in columns
    )


def _look(connection: Connection, relation: TableName, names: list[str]) -> dict[str, int]:
    """The commonest number of dimensions of each column; empty arrays have none and say nothing."""
    shapes = sql.SQL(", ").join(
        sql.SQL("mode() WITHIN GROUP (ORDER BY array_ndims({}))").format(sql.Identifier(name)) for name in names
    )
    question = sql.SQL("SELECT ARRAY[{}] AS shapes FROM (SELECT {} FROM ONLY {} LIMIT {}) AS start").format(
        shapes,
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.Identifier(relation.schema, relation.name),
        sql.Literal(ROWS),
    )
    with talking(f"looking at the arrays of {relation}"):
        row = connection.execute(question).fetchone()
    found = row.shapes if row is not None else []
    return {name: shape for name, shape in zip(names, found, strict=True) if shape is not None}
