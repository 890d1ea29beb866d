"""A table in a DuckDB file follows its source's shape by attribute numbers, whatever the columns are called."""

from __future__ import annotations

from dataclasses import replace

import duckdb

from walrelay.destinations.duckdb.progress import ProgressBook
from walrelay.destinations.duckdb.shape import ShapeKeeper
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema

TEXT = PgType(25, "text")


def version(number: int, **columns: int) -> SchemaVersion:
    """Columns of text, name and attribute number."""
    described = tuple(Column(name, TEXT, attnum=attnum) for name, attnum in columns.items())
    schema = TableSchema(id=16400, name=TableName("public", "t"), columns=described, primary_key=("id",))
    return SchemaVersion(schema, number, Lsn(number))


def followed(*versions: SchemaVersion) -> list[tuple[object, ...]]:
    """The rows of a table that had one of the first shape, with each column's name in it, after the other shapes."""
    connection = duckdb.connect()
    book = ProgressBook(connection, "memory")
    book.create()
    keeper, held = ShapeKeeper(connection, "memory", book), None
    for one in versions:
        held = keeper.follow(held, one, whole=True)
        if one is versions[0]:
            names = [column.name for column in one.schema.columns]
            connection.execute(f"INSERT INTO public.t VALUES ({', '.join('?' for _ in names)})", names)
    return connection.execute("SELECT * FROM public.t").fetchall()


def test_a_column_dropped_and_added_again_does_not_keep_its_values() -> None:
    """Also where it was the last one, and the table looks as before."""
    before = version(1, id=1, a=2, c=3)
    assert followed(before, version(2, id=1, a=2, c=4)) == [("id", "a", None)]
    assert followed(before, version(2, id=1, c=3, a=4)) == [("id", "c", None)]


def test_columns_that_exchange_their_names_keep_their_values() -> None:
    assert followed(version(1, id=1, a=2, c=3), version(2, id=1, c=2, a=3)) == [("id", "a", "c")]


def test_a_version_that_alters_nothing_leaves_the_table_alone() -> None:
    same = version(1, id=1, a=2)
    assert followed(same, replace(same, version=2, from_lsn=Lsn(2))) == [("id", "a")]
