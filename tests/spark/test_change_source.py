"""The change log as a Spark source: offsets, replay, the typed view, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.log_kit import Source
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.log.reader import LogReader
from walrelay.model.names import TableName

pytestmark = pytest.mark.spark


@pytest.fixture
def source(database: str, tmp_path: Path) -> Iterator[Source]:
    source = Source(database, tmp_path / "log")
    yield source
    source.close()


ONE = "INSERT INTO orders VALUES (1, '00000000-0000-0000-0000-000000000001', '12:30', 1.5)"


def test_a_batch_read_gives_one_row_per_change_with_a_stable_schema(spark: SparkSession, source: Source) -> None:
    source.change(
        ONE, "INSERT INTO other VALUES (5)", "UPDATE orders SET id = 2", "DELETE FROM orders", "TRUNCATE other"
    )
    frame = spark.read.format("walrelay").option("log", str(source.log)).load()
    rows = frame.orderBy("commit_lsn", "ordinal").collect()
    assert [(row.table, row.op) for row in rows] == [
        ("public.orders", "insert"),
        ("public.other", "insert"),
        ("public.orders", "update"),
        ("public.orders", "delete"),
        ("public.other", "truncate"),
    ]
    assert rows[0].row == ('{"id":1,"key":"00000000-0000-0000-0000-000000000001","at":"12:30:00","paid":"1.50"}')
    assert (rows[2].old, rows[2].old_kind) == ('{"id":1,"key":null,"at":null,"paid":null}', "key")
    assert rows[3].row is None and rows[4].row is None and rows[4].old is None
    assert all(row.commit_lsn < row.end_lsn for row in rows)


def test_the_typed_view_has_the_tables_columns(spark: SparkSession, source: Source) -> None:
    source.change(ONE, "INSERT INTO other VALUES (5)")
    reader = spark.read.format("walrelay").option("log", str(source.log)).option("table", "public.orders")
    (row,) = reader.load().select("op", "row.*").collect()
    assert row.asDict() == {
        "op": "insert",
        "id": 1,
        "key": "00000000-0000-0000-0000-000000000001",
        "at": "12:30:00",
        "paid": row.paid,
    }
    assert str(row.paid) == "1.50"


def test_the_typed_view_follows_columns_by_name_through_schema_changes(spark: SparkSession, source: Source) -> None:
    source.change(ONE, "ALTER TABLE orders ADD note text", "ALTER TABLE orders DROP at")
    source.change("ALTER TABLE orders ALTER id TYPE bigint", "INSERT INTO orders VALUES (2, NULL, 2, 'new')")
    reader = spark.read.format("walrelay").option("log", str(source.log)).option("table", "public.orders")
    rows = reader.load().orderBy("commit_lsn").select("row.*", "schema_version").collect()
    assert [(row.id, row.note) for row in rows] == [(1, None), (2, "new")]
    assert "at" not in rows[0].asDict() and rows[0].schema_version < rows[1].schema_version


def test_a_stream_with_available_now_goes_on_where_it_was(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    def drain() -> list[int]:
        changes = spark.readStream.format("walrelay").option("log", str(source.log))
        query = (
            changes.option("table", "public.orders")
            .load()
            .selectExpr("row.id")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(row.id for row in spark.read.schema("id INT").parquet(str(tmp_path / "out")).collect())

    source.change(ONE)
    assert drain() == [1]
    assert drain() == [1]
    source.change(*(f"INSERT INTO orders VALUES ({number})" for number in range(2, 6)))
    assert drain() == [1, 2, 3, 4, 5]


def test_a_continual_stream_sees_what_comes_later(spark: SparkSession, source: Source) -> None:
    source.change(ONE)
    end = LogReader(source.log).end()
    changes = spark.readStream.format("walrelay").option("log", str(source.log)).option("from", str(end))
    query = changes.load().writeStream.format("memory").queryName("later").start()
    try:
        source.change("INSERT INTO orders VALUES (7)")
        query.processAllAvailable()
        assert [row.row for row in spark.table("later").collect()] == ['{"id":7,"key":null,"at":null,"paid":null}']
    finally:
        query.stop()


def test_any_range_can_be_read_again(spark: SparkSession, source: Source) -> None:
    source.change(ONE)
    low = LogReader(source.log).end()
    source.change("INSERT INTO orders VALUES (2)")
    high = LogReader(source.log).end()
    source.change("INSERT INTO orders VALUES (3)")
    reader = spark.read.format("walrelay").option("log", str(source.log)).option("table", "public.orders")
    frame = reader.option("from", str(low)).option("to", str(high)).load()
    assert [row.id for row in frame.select("row.id").collect()] == [2]
    assert [row.id for row in frame.select("row.id").collect()] == [2]


def test_a_batch_as_a_dataframe_has_each_table_from_its_own_position(spark: SparkSession, source: Source) -> None:
    """And, of one that catches up, only what its snapshot did not see."""
    source.change("INSERT INTO other VALUES (1)", "INSERT INTO orders VALUES (1)")
    middle = LogReader(source.log).end()
    source.change("INSERT INTO other VALUES (2)", "INSERT INTO orders VALUES (2)")
    log = LogReader(source.log)
    first, later = (change.xid for change in log.changes() if str(change.table) == "public.other")
    orders, other = (log.table(TableName("public", name)).schema.id for name in ("orders", "other"))

    def seen(*ranges: TableRange) -> list[tuple[str, str]]:
        batch = EventBatch(log, log.start(), log.end(), ranges, location=str(source.log), spark=lambda: spark)
        frame = batch.dataframe().orderBy("commit_lsn")
        plain = [(str(change.table), str((change.row or {})["id"])) for change in batch.changes()]
        assert [(row.table, str(json.loads(row.row)["id"])) for row in frame.collect()] == plain
        return plain

    snapshot = f"{first + 1}:{later}:"
    assert seen(TableRange(orders, middle)) == [("public.orders", "2")]
    assert seen(TableRange(other, log.start(), unseen_by=snapshot)) == [("public.other", "2")]
    assert seen(TableRange(orders, log.start()), TableRange(other, middle)) == [
        ("public.orders", "1"),
        ("public.other", "2"),
        ("public.orders", "2"),
    ]


def test_asking_how_far_the_log_is_needs_no_decoder() -> None:
    """Spark starts a process for it, for every query: it should not take seconds."""
    loaded = "import sys, walrelay.spark.datasource; print(*(name for name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    assert not {"numba", "pydantic", "psycopg", "pandas", "walrelay.decode.base"} & set(found)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"log": "/nowhere/at/all"}, "log.not_found"),
        ({"log": "LOG", "table": "public.nothing"}, "source.no_such_table"),
        ({"log": "LOG", "from": "yesterday"}, "config.invalid"),
        ({"log": "LOG", "colour": "red"}, "config.invalid"),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, source: Source, options: dict[str, str], code: str) -> None:
    given = {key: str(source.log) if value == "LOG" else value for key, value in options.items()}
    with pytest.raises(PySparkException, match=code):
        spark.read.format("walrelay").options(**given).load().collect()


def test_a_stream_of_a_table_without_a_log_says_what_to_do(spark: SparkSession, database: str) -> None:
    with pytest.raises(PySparkException, match="walrelay capture"):
        stream = spark.readStream.format("walrelay").option("url", database).option("table", "t").schema("id INT")
        stream.load().writeStream.format("noop").start().awaitTermination()
