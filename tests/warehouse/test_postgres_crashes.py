"""Drivers that are killed while they copy into Postgres, alter and commit: nothing is missing or double.

Each dies with its JVM. The next run is one here, and what it has made of the tables is read by SQL that is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import Driver, drop_slot
from tests.lake.lake_kit import Notices
from tests.lake.test_lake_crashes import TABLES, changes, copy_again
from tests.repetitions import some
from tests.session_kit import JAVA_OPTIONS, session_with
from tests.warehouse.postgres_kit import fresh_database
from tests.warehouse.test_postgres_pipeline import dump
from walrelay import Pipeline, PostgresDestination, PostgresSource, SqliteStore
from walrelay.spark.session import LOCAL_SETTINGS
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]

LARGE = "INSERT INTO orders SELECT -g, g, repeat(md5(g::text), 100) FROM generate_series(1, 2500) g"
"""So that the table is passed on by bytes, the others being decoded."""
QUICK = {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}
COPYING = ("destination.before_commit=kill:2", "destination.committed=kill:2", "copy.after_finished=kill")
CHANGING = (
    "destination.ddl=kill",
    "destination.before_commit=kill",
    "destination.committed=kill",
    "events.after_write=kill",
    "progress.before_record=kill",
)
IN_SHORT = ("destination.committed=kill",)
PATIENCE = 400.0
"""For a JVM that has just started, on a busy machine."""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"into_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


def catch_up(directory: Path, url: str, slot: str, target: str, spark: SparkSession) -> Notices:
    store, notices = SqliteStore(directory / "state.sqlite", "killed"), Notices()
    try:
        Pipeline(
            PostgresSource(url, publication="p"), PostgresDestination(target), store, mode="both", spark=spark,
            listener=notices, id="killed", log=directory / "log", slot=slot,
        ).run("caught-up")  # fmt: skip
    finally:
        store.close()
    return notices


def ours(target: str) -> set[str]:
    with psycopg.connect(target) as connection:
        found = connection.execute("SELECT relname FROM pg_class WHERE relname ~ '^_walrelay_copy' AND relkind = 'r'")
        return {name for (name,) in found}


def test_drivers_killed_at_every_place_lose_nothing_and_double_nothing(
    database: str, slot: str, target: str, tmp_path: Path
) -> None:
    spark = session_with({})

    def killed(at: str) -> None:
        driver = Driver(database, slot, tmp_path, failpoints=at, lake=target, spark=QUICK)
        try:
            driver.wait_killed(PATIENCE)
        finally:
            driver.close()

    copying = some((), COPYING)
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        source.execute(LARGE)
        if not copying:
            catch_up(tmp_path, database, slot, target, spark)
        for number, at in enumerate(copying):
            if number:
                source.execute(changes(number))
                copy_again(tmp_path)
            killed(at)
            catch_up(tmp_path, database, slot, target, spark)
            assert dump(target) == dump(database), at
        for number, at in enumerate(some(IN_SHORT, CHANGING), max(1, len(copying))):
            source.execute(changes(number))
            killed(at)
            notices = catch_up(tmp_path, database, slot, target, spark)
            assert not notices.copied, f"{at}: the copy would hide what is wrong; {notices.heard}"
            assert dump(target) == dump(database), at
    assert not ours(target), "what a dead run has left is swept"
