"""With TLS the rows come through libpq, a message at a time; they are the same rows."""

from __future__ import annotations

import psycopg

from walrelay.decode.base import ARROW, Tally
from walrelay.decode.table import TableDecoder
from walrelay.model.names import TableName
from walrelay.model.ranges import CtidRange
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.copy import _through_libpq, copy_rows, copy_statement
from walrelay.postgres.source import PostgresSource
from walrelay.wire.copy_binary import CopyBuffer


def test_both_ways_give_the_same_rows(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, note text)")
        connection.execute("INSERT INTO t SELECT g, repeat('é', g % 3000) FROM generate_series(1, 2000) g")
        connection.execute("INSERT INTO t VALUES (0, NULL)")
    with connect(PostgresSource(database)) as connection:
        schema = read_schema(connection, find_table(connection, TableName("public", "t")))
        whole = CtidRange(schema.leaves[0])
        decoder = TableDecoder(schema, Tally(ARROW))
        direct = [
            row
            for rows in copy_rows(connection, schema, whole, chunk_bytes=65536)
            for row in decoder.decode(rows).to_pylist()
        ]
        statement = copy_statement(schema, whole).as_bytes(connection)
        for capacity in (64, 5_000, 1 << 20):
            buffer = CopyBuffer(2, framed=False, capacity=capacity)
            found = [
                row
                for rows in _through_libpq(connection, statement, buffer)
                for row in decoder.decode(rows).to_pylist()
            ]
            assert found == direct
    assert len(direct) == 2001


def test_the_connection_is_of_use_after_a_copy_from_its_socket(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 10) g")
    with connect(PostgresSource(database)) as connection:
        schema = read_schema(connection, find_table(connection, TableName("public", "t")))
        for _ in range(3):
            count = sum(
                len(rows) for rows in copy_rows(connection, schema, CtidRange(schema.leaves[0]), chunk_bytes=65536)
            )
            assert count == 10
            row = connection.execute("SELECT count(*) AS n FROM t").fetchone()
            assert row is not None and row.n == 10
