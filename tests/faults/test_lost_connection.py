"""A connection that dies in the middle of a copy: that table starts again, the others go on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from walrelay import CopySettings, MemoryDestination, Pipeline, PostgresSource
from walrelay.errors import CopyFailedError, WalrelayError
from walrelay.model.names import TableName
from walrelay.spark.session import spark_session
from walrelay.workers.report import Silent

pytestmark = pytest.mark.spark
ROWS = 400_000


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session()


class Cutter(Silent):
    """Ends the tasks' connections of one table, as a crash of their server processes would: once in each attempt."""

    def __init__(self, url: str, times: int) -> None:
        self.url = url
        self.left = times
        self.retried: list[tuple[TableName, WalrelayError]] = []

    def table_started(self, table: TableName, attempt: int) -> None:
        if table.name == "large" and self.left:
            self.left -= 1
            threading.Thread(target=self._cut, daemon=True).start()

    def _cut(self) -> None:
        deadline = time.monotonic() + 60
        with psycopg.connect(self.url, autocommit=True) as connection:
            while time.monotonic() < deadline:
                row = connection.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_progress_copy"
                    " WHERE datname = current_database() AND tuples_processed > 1000"
                ).fetchone()
                if row and row[0]:
                    return
                time.sleep(0.005)

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        self.retried.append((table, error))


@pytest.fixture
def two_tables(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE large (id int, filler text)")
        connection.execute("CREATE TABLE small (id int)")
        connection.execute(f"INSERT INTO large SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g")  # type: ignore[call-overload]
        connection.execute("INSERT INTO small VALUES (1)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    return database


def test_the_table_is_copied_again_from_its_start(spark: SparkSession, two_tables: str) -> None:
    cutter = Cutter(two_tables, times=2)
    destination = MemoryDestination()
    settings = CopySettings(retry_delay="0.2", range_bytes=8 * 1024 * 1024)  # type: ignore[arg-type]
    source = PostgresSource(two_tables, publication="p")
    summary = Pipeline(source, destination, spark=spark, settings=settings, listener=cutter).run()
    assert [error.code for _, error in cutter.retried] == ["source.connection_lost"] * 2
    assert {str(table.name): table.attempts for table in summary.tables} == {"public.large": 3, "public.small": 1}
    ids = destination.tables["public.large"].column("id").to_pylist()
    assert sorted(ids) == list(range(1, ROWS + 1))


def test_when_retries_are_used_up_the_other_tables_are_in_place(
    spark: SparkSession, two_tables: str, tmp_path: Path
) -> None:
    destination = MemoryDestination()
    settings = CopySettings(retries=0, range_bytes=8 * 1024 * 1024, staging=tmp_path)
    source = PostgresSource(two_tables, publication="p")
    with pytest.raises(CopyFailedError) as caught:
        Pipeline(source, destination, spark=spark, settings=settings, listener=Cutter(two_tables, times=99)).run()
    assert caught.value.context == {"code": "source.connection_lost", "tables": ["public.large"]}
    assert destination.rows("public.small") == [{"id": 1}]
    assert list(tmp_path.iterdir()) == []
