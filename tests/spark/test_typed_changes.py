"""The typed view of changes goes by table id, schema version and attribute number, never by names at the log's head."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from tests.spark.log_kit import Source
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.cli.app import app
from walrelay.errors import TableMissingError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

pytestmark = pytest.mark.spark


@pytest.fixture
def source(database: str, tmp_path: Path) -> Iterator[Source]:
    source = Source(database, tmp_path / "log")
    yield source
    source.close()


def typed(spark: SparkSession, source: Source, table: str = "public.orders", **options: Any) -> DataFrame:
    given = {"log": str(source.log), "table": table, **{key: str(value) for key, value in options.items()}}
    return spark.read.format("walrelay").options(**{key.rstrip("_"): value for key, value in given.items()}).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows after each change."""
    found = frame.orderBy("commit_lsn", "ordinal").collect()
    return [{} if change.row is None else change.row.asDict() for change in found]


def end(source: Source) -> Lsn:
    return LogReader(source.log).end()


def id_of(source: Source, table: str) -> TableId:
    (found,) = source.connection.execute("SELECT %s::regclass::oid::int8", (table,)).fetchone() or ()
    return int(found)


def batch(spark: SparkSession, source: Source, after: Lsn, to: Lsn, *ranges: TableRange) -> EventBatch:
    return EventBatch(LogReader(source.log), after, to, ranges or None, location=str(source.log), spark=lambda: spark)


# -------------------------------------------------------------------------------------------------------------- columns


def test_a_renamed_column_keeps_its_values(spark: SparkSession, source: Source) -> None:
    source.change("INSERT INTO orders (id, paid) VALUES (1, 1.5)")
    source.change("ALTER TABLE orders RENAME paid TO price", "INSERT INTO orders (id, price) VALUES (2, 2.5)")
    assert [(row["id"], str(row["price"])) for row in rows(typed(spark, source))] == [(1, "1.50"), (2, "2.50")]


def test_swapped_names_do_not_exchange_columns(spark: SparkSession, source: Source) -> None:
    source.change("ALTER TABLE orders ADD a int, ADD b int", "INSERT INTO orders (id, a, b) VALUES (1, 10, 20)")
    source.change(
        "ALTER TABLE orders RENAME a TO c",
        "ALTER TABLE orders RENAME b TO a",
        "ALTER TABLE orders RENAME c TO b",
        "INSERT INTO orders (id, a, b) VALUES (2, 20, 10)",
    )
    assert [(row["a"], row["b"]) for row in rows(typed(spark, source))] == [(20, 10), (20, 10)]


def test_a_column_that_was_dropped_and_added_again_is_another_one(spark: SparkSession, source: Source) -> None:
    source.change("ALTER TABLE orders ADD note text", "INSERT INTO orders (id, note) VALUES (1, 'of the first')")
    source.change("ALTER TABLE orders DROP note")
    source.change(
        "ALTER TABLE orders ADD note text, ADD more int",
        "INSERT INTO orders (id, note) VALUES (2, 'of the second')",
    )
    assert [row["note"] for row in rows(typed(spark, source))] == [None, "of the second"]


def test_unchanged_columns_are_named_as_they_are_declared(spark: SparkSession, source: Source) -> None:
    """A dropped one is not named, also when another has its name now."""
    source.connection.execute("ALTER TABLE orders ADD gone text, ADD large text")
    source.connection.execute("ALTER TABLE orders ALTER gone SET STORAGE EXTERNAL, ALTER large SET STORAGE EXTERNAL")
    long = "repeat('x', 5000)"
    source.change(f"INSERT INTO orders (id, gone, large) VALUES (1, {long}, {long})", "UPDATE orders SET paid = 1")
    (change,) = typed(spark, source).where("op = 'update'").collect()
    assert change.unchanged == ["gone", "large"]
    source.change("ALTER TABLE orders DROP gone")
    source.change(
        "ALTER TABLE orders ADD gone text",
        "ALTER TABLE orders RENAME large TO larger",
        "INSERT INTO orders (id) VALUES (2)",
    )
    first, update, last = typed(spark, source).orderBy("commit_lsn").collect()
    assert update.unchanged == ["larger"]
    assert (first.unchanged, last.unchanged) == (None, None)


def test_a_rename_behind_a_backlog_keeps_its_values(spark: SparkSession, source: Source) -> None:
    """Capture came to the first change after the rename; its looks at the catalog tell which column `paid` was."""
    source.change(
        "INSERT INTO orders (id, paid) VALUES (1, 1.5)",
        "ALTER TABLE orders RENAME paid TO price",
        "INSERT INTO orders (id, price) VALUES (2, 2.5)",
    )
    assert [float(row["price"]) for row in rows(typed(spark, source))] == [1.5, 2.5]


def test_columns_that_cannot_be_told_apart_are_refused(spark: SparkSession, source: Source) -> None:
    source.change("ALTER TABLE orders ADD note text", "INSERT INTO orders (id, note) VALUES (1, 'of the first')")
    source.change(
        "ALTER TABLE orders DROP note",
        "ALTER TABLE orders ADD note text",
        "INSERT INTO orders (id, note) VALUES (2, 'of the second')",
    )
    with pytest.raises(PySparkException, match=r"log\.schema_changed"):
        typed(spark, source).collect()


CONVERTED = {
    "wider": ("int", "7", "bigint", "7"),
    "narrower": ("bigint", "7", "int", "7"),
    "exact": ("int", "7", "numeric(8,2)", "7.00"),
    "told": ("int", "7", "text", "7"),
    "digits": ("numeric(8,2)", "1.50", "numeric(12,4)", "1.5000"),
    "any_digits": ("numeric(12,10)", "0.0000001", "numeric", "0.0000001000"),
    "fewer_digits": ("numeric", "1.50", "numeric(8,2)", "1.50"),
    "read": ("text", "'42'", "int", "42"),
    "midnight": ("date", "'2026-01-31'", "timestamp", "2026-01-31 00:00:00"),
    "several": ("int[]", "'{1,2}'", "bigint[]", "[1, 2]"),
    "nothing": ("bytea", "NULL", "text", "None"),
}
"""Column → the type it had, a value, the type that it gets, and the value in that one."""


def test_a_value_of_another_type_is_converted_exactly(spark: SparkSession, source: Source) -> None:
    for column, (before, value, _, _) in CONVERTED.items():
        source.connection.execute(f"ALTER TABLE other ADD {column} {before} DEFAULT {value}")
    source.change("INSERT INTO other VALUES (1)")
    for column, (_, _, after, _) in CONVERTED.items():
        source.connection.execute(f"ALTER TABLE other ALTER {column} DROP DEFAULT")
        source.connection.execute(f"ALTER TABLE other ALTER {column} TYPE {after} USING NULL::{after}")
    source.change("INSERT INTO other VALUES (2)")
    first, second = rows(typed(spark, source, "public.other"))
    assert {column: str(first[column]) for column in CONVERTED} == {name: one[-1] for name, one in CONVERTED.items()}
    assert all(second[column] is None for column in CONVERTED)


def test_a_value_that_another_type_cannot_say_is_refused(spark: SparkSession, source: Source) -> None:
    """A day has no hour. (What else is refused: tests/unit/test_exact.py.)"""
    source.change("ALTER TABLE orders ADD v timestamp", "INSERT INTO orders (id, v) VALUES (1, '2026-01-31 12:30')")
    source.change("ALTER TABLE orders ALTER v TYPE date", "INSERT INTO orders (id) VALUES (2)")
    with pytest.raises(PySparkException, match=r"log\.schema_changed") as refused:
        typed(spark, source).collect()
    assert "12:30" not in str(refused.value)


# --------------------------------------------------------------------------------------------------------------- tables


def test_a_batch_gives_the_same_dataframe_whatever_becomes_of_its_table(spark: SparkSession, source: Source) -> None:
    after = end(source)
    source.change("INSERT INTO orders (id, paid) VALUES (1, 1.5)", "UPDATE orders SET paid = 2")
    to, table = end(source), id_of(source, "orders")

    def taken(wanted: str | TableId) -> tuple[list[tuple[str, str]], list[Any]]:
        frame = batch(spark, source, after, to).dataframe(wanted)
        return frame.dtypes, frame.orderBy("commit_lsn").collect()

    first = taken("public.orders")
    assert len(first[1]) == 2 and taken(table) == first
    source.change(
        "ALTER TABLE orders RENAME TO purchases",
        "ALTER TABLE purchases RENAME paid TO price",
        "ALTER TABLE purchases ADD note text",
        "ALTER TABLE purchases DROP key",
        "INSERT INTO purchases (id) VALUES (2)",
    )
    assert taken("public.orders") == first and taken(table) == first
    source.change("DROP TABLE purchases", "CREATE TABLE orders (id int PRIMARY KEY)")
    source.change("ALTER PUBLICATION p ADD TABLE orders", "INSERT INTO orders VALUES (1)")
    assert taken("public.orders") == first and taken(table) == first
    with pytest.raises(TableMissingError, match="purchases"):
        taken("public.purchases")


def test_a_batch_finds_a_table_by_a_name_it_had_within(spark: SparkSession, source: Source) -> None:
    """The name at the batch's end comes first; the shape is that of the end."""
    after = end(source)
    source.change("INSERT INTO orders (id) VALUES (1)", "INSERT INTO other VALUES (5)")
    source.change(
        "ALTER TABLE orders RENAME TO purchases",
        "ALTER TABLE purchases RENAME paid TO price",
        "INSERT INTO purchases (id, price) VALUES (2, 2.5)",
    )
    to = end(source)
    whole = batch(spark, source, after, to)
    for name in ("public.purchases", "public.orders"):
        assert [row["id"] for row in rows(whole.dataframe(name))] == [1, 2]
        assert "price" in rows(whole.dataframe(name))[0]
    source.change("ALTER TABLE other RENAME TO orders", "INSERT INTO orders VALUES (6)")
    assert [row["id"] for row in rows(whole.dataframe("public.orders"))] == [1, 2]
    longer = batch(spark, source, after, end(source))
    assert [row["id"] for row in rows(longer.dataframe("public.orders"))] == [5, 6]


def test_a_batch_of_chosen_tables_means_those(spark: SparkSession, source: Source) -> None:
    """A table that catches up by itself is found by its name, also when another has taken that meanwhile."""
    after = end(source)
    source.change("INSERT INTO orders (id) VALUES (1)")
    table = id_of(source, "orders")
    source.change(
        "ALTER TABLE orders RENAME TO aside", "ALTER TABLE other RENAME TO orders", "INSERT INTO orders VALUES (5)"
    )
    alone = batch(spark, source, after, end(source), TableRange(table, after))
    (part,) = alone.tables()
    assert rows(alone.dataframe(str(part.schema.name))) == rows(alone.dataframe(table))
    assert [row["id"] for row in rows(alone.dataframe(table))] == [1]


def test_a_name_means_the_table_that_has_it_at_the_end_of_the_range(spark: SparkSession, source: Source) -> None:
    source.change("INSERT INTO orders (id) VALUES (1)")
    middle = end(source)
    source.change(
        "DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE orders"
    )
    source.change("INSERT INTO orders VALUES (2)")
    assert [row["id"] for row in rows(typed(spark, source, to=middle))] == [1]
    assert rows(typed(spark, source)) == [{"id": 2}]


def test_tables_that_swap_names_and_swap_them_back_are_told_apart(spark: SparkSession, source: Source) -> None:
    swap = (
        "ALTER TABLE orders RENAME TO aside",
        "ALTER TABLE other RENAME TO orders",
        "ALTER TABLE aside RENAME TO other",
    )
    source.change("INSERT INTO orders (id) VALUES (1)", "INSERT INTO other VALUES (5)")
    first = end(source)
    source.change(*swap, "INSERT INTO orders VALUES (6)")  # the one that was `other`; nothing is said of the first
    second = end(source)
    source.change(*swap, "INSERT INTO orders (id) VALUES (2)")  # and back, in a shape that the log knows already

    def ids(to: Lsn) -> list[int]:
        return [row["id"] for row in rows(typed(spark, source, to=to))]

    def replayed(to: Lsn) -> list[int]:
        said = CliRunner().invoke(app, ["replay", str(source.log), "--table", "public.orders", "--to", str(to)])
        return [json.loads(line)["row"]["id"] for line in said.stdout.splitlines()]

    for to, expected in ((first, [1]), (second, [5, 6]), (end(source), [1, 2])):
        assert ids(to) == replayed(to) == expected


def test_a_range_without_changes_of_the_table_gives_no_rows(spark: SparkSession, source: Source) -> None:
    source.change("INSERT INTO orders (id) VALUES (1)")
    middle = end(source)
    source.change("INSERT INTO other VALUES (5)")
    assert rows(typed(spark, source, from_=middle)) == []
    assert rows(batch(spark, source, middle, end(source)).dataframe("public.orders")) == []


def test_a_dataframe_keeps_the_shape_with_which_it_was_made(spark: SparkSession, source: Source) -> None:
    source.change("INSERT INTO orders (id, paid) VALUES (1, 1.5)")
    frame = typed(spark, source)
    source.change(
        "ALTER TABLE orders RENAME TO purchases",
        "ALTER TABLE purchases RENAME paid TO price",
        "ALTER TABLE purchases ADD note text",
        "INSERT INTO purchases (id, price, note) VALUES (2, 2.5, 'new')",
    )
    assert [(row["id"], str(row["paid"])) for row in rows(frame)] == [(1, "1.50"), (2, "2.50")]


# -------------------------------------------------------------------------------------------------------------- streams


def test_a_stream_goes_on_with_its_table_through_renames(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Its shape is that of its start: what comes later is not shown. A restart finds the table by its old name."""
    changes = spark.readStream.format("walrelay").option("log", str(source.log)).option("table", "public.orders")

    def start() -> Any:
        writer = changes.load().select("row.*").writeStream
        return writer.format("parquet").option("path", str(out)).option("checkpointLocation", str(marks)).start()

    out, marks = tmp_path / "out", tmp_path / "marks"
    source.change("INSERT INTO orders (id, paid) VALUES (1, 1.5)")
    query = start()
    try:
        query.processAllAvailable()
        source.change("ALTER TABLE orders RENAME TO purchases", "ALTER TABLE purchases RENAME paid TO price")
        source.change("ALTER TABLE purchases ADD note text", "INSERT INTO purchases (id, price) VALUES (2, 2.5)")
        query.processAllAvailable()
    finally:
        query.stop()
    found = spark.read.parquet(str(out))
    assert found.columns == ["id", "key", "at", "paid"]
    assert sorted(str(row.paid) for row in found.collect()) == ["1.50", "2.50"]
    source.change("INSERT INTO purchases (id, price) VALUES (3, 3.5)")
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert spark.read.option("mergeSchema", "true").parquet(str(out)).count() == 3


def test_a_stream_stops_when_a_type_can_no_longer_be_converted(spark: SparkSession, source: Source) -> None:
    source.change("INSERT INTO orders (id, paid) VALUES (1, 1.5)")
    changes = spark.readStream.format("walrelay").option("log", str(source.log)).option("table", "public.orders")
    query = changes.load().writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        source.change(
            "ALTER TABLE orders ALTER paid TYPE double precision", "INSERT INTO orders VALUES (2, NULL, NULL)"
        )
        query.processAllAvailable()  # no value, nothing to convert
        source.change("UPDATE orders SET paid = 1.255 WHERE id = 2")
        with pytest.raises(PySparkException, match=r"log\.schema_changed"):
            query.processAllAvailable()
    finally:
        query.stop()
