"""Options of tables and functions on their rows, into Postgres."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.session_kit import session_with
from tests.shaping_kit import FUNCTIONS, OPTIONS, TABLES, assert_shaped, change
from tests.warehouse.postgres_kit import fresh_database
from walrelay import Pipeline, PostgresDestination, PostgresSource, SqliteStore
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_with({})


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


def test_tables_are_shaped_on_both_roads_into_postgres(
    database: str, target: str, tmp_path: Path, spark: SparkSession
) -> None:
    slot = f"shaped_{uuid4().hex[:12]}"

    def catch_up() -> None:
        with closing(SqliteStore(tmp_path / "state.sqlite", "shaped")) as store:
            Pipeline(
                PostgresSource(database, publication="p"),
                PostgresDestination(target, relay_from=0),  # passed on as it comes, if nothing is to be done to it
                store,
                mode="both",
                spark=spark,
                log=tmp_path / "log",
                slot=slot,
                tables=OPTIONS,
                transform=FUNCTIONS,
            ).run("caught-up")

    def read(table: str, columns: str) -> Counter[tuple[Any, ...]]:
        with psycopg.connect(target) as connection:
            return Counter(connection.execute(f"SELECT {columns} FROM public.{table}".encode()).fetchall())

    with psycopg.connect(database, autocommit=True) as source:
        for statement in TABLES.strip().split(";\n"):
            source.execute(statement.encode())
    try:
        catch_up()
        assert_shaped(database, read, changed=False)
        change(database)
        catch_up()
        assert_shaped(database, read, changed=True)
    finally:
        drop_slot(database, slot)
