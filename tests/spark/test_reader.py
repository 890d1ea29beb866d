"""`spark.read.format("walrelay")`, as a user writes it."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from walrelay.errors import ConfigError, TableMissingError, from_text

pytestmark = pytest.mark.spark


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def test_a_table_is_a_typed_dataframe(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(12,2), at timestamptz, plain timestamp, day date,"
        " tags text[], grid int[][], p pair, u uuid, t time, i interval, r int4range, raw bytea, doubled bigint"
        " GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO orders VALUES (1, 12.30, '2024-02-29 12:00:00+00', '2024-02-29 12:00:00.5', '2024-02-29',"
        " '{a,NULL}', '{{1,2},{3,4}}', '(7,x)', '00000000-0000-0000-0000-000000000001', '24:00:00',"
        " '1 mon 2 days 3 us', '[1,5)', '\\x00ff')",
    )
    frame = spark.read.format("walrelay").option("url", database).option("table", "public.orders").load()
    (row,) = frame.collect()
    assert row.id == 1 and row.doubled == 2
    assert row.amount == Decimal("12.30")
    assert row.plain == datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000)
    assert row.day == datetime.date(2024, 2, 29)
    assert row.tags == ["a", None] and row.grid == [[1, 2], [3, 4]]
    assert (row.p.a, row.p.b) == (7, "x")
    assert row.u == "00000000-0000-0000-0000-000000000001" and row.t == "24:00:00"
    assert (row.i.months, row.i.days, row.i.microseconds) == (1, 2, 3)
    assert (row.r.lower, row.r.upper, row.r.lower_inc, row.r.upper_inc, row.r.empty) == (1, 5, True, False, False)
    assert bytes(row.raw) == b"\0\xff"
    assert frame.selectExpr("date_format(at, 'yyyy-MM-dd HH:mm:ss') AS at").collect()[0].at == "2024-02-29 12:00:00"


def test_it_reads_in_parallel_under_one_snapshot_that_survives_changes(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int, f text)",
        "INSERT INTO t SELECT g, repeat('x', 300) FROM generate_series(1, 50000) g",
    )
    frame = (
        spark.read.format("walrelay").option("url", database).option("table", "t").option("range_bytes", 2**20).load()
    )
    assert frame.rdd.getNumPartitions() > 5
    first = frame.count()
    execute(database, "DELETE FROM t WHERE id > 100")
    assert first == 50000
    # The plan of this DataFrame has its snapshot: it goes on seeing what it saw.
    assert frame.count() == 50000
    assert spark.read.format("walrelay").option("url", database).option("table", "t").load().count() == 100


def test_an_empty_table_gives_an_empty_dataframe(spark: SparkSession, database: str) -> None:
    execute(database, "CREATE TABLE t (id int, v text)")
    frame = spark.read.format("walrelay").option("url", database).option("table", "t").load()
    assert frame.collect() == [] and frame.columns == ["id", "v"]


def test_infinity_has_no_place_in_spark_and_follows_the_policy(spark: SparkSession, database: str) -> None:
    execute(database, "CREATE TABLE t (d date)", "INSERT INTO t VALUES ('infinity'), ('2024-01-01')")
    reader = spark.read.format("walrelay").option("url", database).option("table", "t")
    assert sorted(str(row.d) for row in reader.load().collect()) == ["2024-01-01", "None"]
    with pytest.raises(Exception, match=r"value\.special"):
        reader.option("special_values", "error").load().collect()


def test_mistakes_are_named(spark: SparkSession, database: str) -> None:
    for options, kind in (
        ({"table": "public.nope"}, TableMissingError),
        ({}, ConfigError),
        ({"table": "a.b.c"}, ConfigError),
        ({"table": "t", "typo": "1"}, ConfigError),
    ):
        with pytest.raises(AnalysisException) as caught:
            spark.read.format("walrelay").option("url", database).options(**options).load()
        assert isinstance(from_text(str(caught.value)), kind)


def test_the_password_is_in_no_plan(spark: SparkSession, database: str) -> None:
    execute(database, "CREATE TABLE t (id int)")
    url = database.replace("postgres@", "postgres:s3cret@")
    frame = spark.read.format("walrelay").option("url", url).option("table", "t").load()
    assert "s3cret" not in frame._jdf.queryExecution().toString()


def test_the_snapshot_is_let_go_when_nobody_reads(spark: SparkSession, database: str) -> None:
    execute(database, "CREATE TABLE t (id int)")
    frame = (
        spark.read.format("walrelay")
        .option("url", database)
        .option("table", "t")
        .option("snapshot_idle_seconds", 1)
        .load()
    )
    assert frame.count() == 0
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'walrelay snapshot%'"
    )
    deadline = time.monotonic() + 20
    with psycopg.connect(database, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = connection.execute(question).fetchone()
            if row == (0,):
                return
            time.sleep(0.2)
    pytest.fail("the snapshot is still held")
