"""Drivers that are killed while they copy into a warehouse, load, alter and commit: nothing is missing or double.

Each dies with its JVM. The next run is one here, and what it has made of the tables is read by the services' clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import Driver, drop_slot
from tests.lake.test_lake_crashes import TABLES, changes, copy_again
from tests.session_kit import JAVA_OPTIONS
from tests.warehouse.warehouse_kit import Place, assert_same, catch_up
from walrelay.destinations.warehouse.names import OWN
from walrelay.spark.session import LOCAL_SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3000)]

COPYING = ("destination.staged=kill:2", "destination.before_commit=kill:2", "destination.committed=kill:2")
CHANGING = (
    "destination.ddl=kill",
    "destination.staged=kill:2",
    "destination.before_commit=kill:2",
    "destination.committed=kill:2",
    "events.after_write=kill",
    "progress.before_record=kill",
)
HELD = ("orders", "loose", "ledger")
PATIENCE = 400.0
"""For a JVM that has just started and writes three tables, on a busy machine."""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"warehouse_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def test_drivers_killed_at_every_place_lose_nothing_and_double_nothing(
    place: Place, database: str, slot: str, tmp_path: Path, warehouse_spark: SparkSession
) -> None:
    def killed(at: str) -> None:
        quick = {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}
        driver = Driver(database, slot, tmp_path, failpoints=at, lake=place.url, spark=quick)
        try:
            driver.wait_killed(PATIENCE)
        finally:
            driver.close()

    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        for number, at in enumerate(COPYING):
            if number:
                source.execute(changes(number))
                copy_again(tmp_path)
            killed(at)
            catch_up(place, tmp_path, database, slot, warehouse_spark)
            assert_same(source, place, HELD, at)
        for number, at in enumerate(CHANGING, len(COPYING)):
            source.execute(changes(number))
            killed(at)
            notices = catch_up(place, tmp_path, database, slot, warehouse_spark)
            assert not notices.copied, f"{at}: the copy would hide what is wrong; {notices.heard}"
            assert_same(source, place, HELD, at)
    assert not [one for one in place.names() if one.startswith(f"{OWN}stage")], "what a dead run has left is swept"
