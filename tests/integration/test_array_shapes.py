"""Arrays are as deep as their values, whatever was declared."""

from __future__ import annotations

import psycopg

from walrelay.model.names import TableName
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource


def depths(url: str, table: str) -> dict[str, int]:
    with connect(PostgresSource(url)) as connection:
        schema = read_schema(connection, find_table(connection, TableName("public", table)))
    return {column.name: column.type.dimensions for column in schema.columns}


def test_values_decide_how_deep_an_array_is(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (id int, declared int[][], forgotten int[], mixed int[], empty int[][], plain text[])"
        )
        connection.execute("INSERT INTO t VALUES (1, NULL, '{{1,2},{3,4}}', '{1}', '{}', '{a}')")
        connection.execute(
            "INSERT INTO t VALUES (2, '{{1}}', NULL, '{{1}}', NULL, '{b}'), (3, NULL, '{}', '{2}', NULL, NULL)"
        )
    expected = {"id": 1, "declared": 2, "forgotten": 2, "mixed": 1, "empty": 2, "plain": 1}
    assert depths(database, "t") == expected


def test_partitions_are_looked_at_until_one_tells(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE m (id int, grid int[]) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10)")
        connection.execute("CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20)")
        connection.execute("INSERT INTO m VALUES (1, NULL), (11, '{{{1}}}')")
    assert depths(database, "m") == {"id": 1, "grid": 3}
