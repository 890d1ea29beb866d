"""The unique index by which rows of a table are found."""

from __future__ import annotations

from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.places import place
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

_INDEXES = """
SELECT i.indexrelid::pg_catalog.regclass::text, c.conname::text, pg_catalog.array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
LEFT JOIN pg_catalog.pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE i.indrelid = pg_catalog.to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY 1, 2
"""


def add_key(connection: Connection, table: str, schema: TableSchema) -> None:
    """Make rows unique by the columns that tell them apart: only by these, since all others may be equal for a moment
    while changes are taken in another order than they happened."""
    if not schema.key_columns:
        return
    columns = ", ".join(map(quoted, schema.key_columns))
    if set(schema.key_columns) == set(schema.primary_key):
        columns = ", ".join(map(quoted, schema.primary_key))
        run(connection, f"ALTER TABLE {table} ADD PRIMARY KEY ({columns})")
        return
    alter = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in schema.key_columns)
    run(connection, f"ALTER TABLE {table} {alter}")
    run(connection, f"CREATE UNIQUE INDEX ON {table} ({columns})")


def unique_keys(connection: Connection, name: TableName) -> dict[frozenset[str], tuple[str, str | None]]:
    """By their columns: the index, and the constraint that it serves."""
    found = rows(connection, _INDEXES, (place(name),))
    return {frozenset(columns): (index, constraint) for index, constraint, columns in found}


def change_key(connection: Connection, name: TableName, schema: TableSchema) -> None:
    """Let rows be told apart by other columns than before: ours is then the only unique index."""
    there = unique_keys(connection, name)
    wanted = frozenset(schema.key_columns)
    if wanted in there or not (wanted or there):
        return
    table = place(name)
    for columns, (index, constraint) in there.items():
        if constraint is None:
            run(connection, f"DROP INDEX {index}")
        else:
            run(connection, f"ALTER TABLE {table} DROP CONSTRAINT {quoted(constraint)}")
        free = columns - wanted
        if free:
            alter = ", ".join(f"ALTER COLUMN {quoted(one)} DROP NOT NULL" for one in sorted(free))
            run(connection, f"ALTER TABLE {table} {alter}")
    add_key(connection, table, schema)
