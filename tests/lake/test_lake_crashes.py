"""Drivers that are killed while they copy into a lake, and while they merge: afterwards nothing is missing or double.

Each dies with its JVM. The next run is one here, on the session that all tests of lakes share, and what it has made of
the tables is read by programs that are not ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import Driver, drop_slot
from tests.lake.lake_kit import Lake, Notices, catch_up
from tests.repetitions import some
from tests.session_kit import JAVA_OPTIONS
from walrelay import SqliteStore
from walrelay.spark.session import LOCAL_SETTINGS
from walrelay.workers.wishes import resync

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

COPYING = ("destination.before_commit=kill:2", "destination.committed=kill:2")
CHANGING = (
    "destination.ddl=kill",
    "destination.before_commit=kill:2",
    "destination.committed=kill:2",
    "events.after_write=kill",
    "progress.before_record=kill",
)
STAGED = "destination.staged=kill:2"
"""Iceberg's own place."""
IN_SHORT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "delta": ((), ("destination.committed=kill:2",)),
    "iceberg": ((), (STAGED,)),
}
ALL = {"delta": (COPYING, CHANGING), "iceberg": (COPYING, (*CHANGING, STAGED))}
"""While it copies, and while it merges. At the second pass another table's work is done, or under way."""

PATIENCE = 240.0
"""For a JVM that has just started and merges into three tables, on a busy machine."""
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, paid numeric(8, 2), body text);
ALTER TABLE orders ALTER COLUMN body SET STORAGE EXTERNAL;  -- so that an update leaves it out
CREATE TABLE loose (n int, word text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE ledger (n int, note text);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO orders SELECT g, g / 3.0, repeat(md5(g::text), 100) FROM generate_series(1, 300) g;
INSERT INTO loose SELECT g % 5, 'w' FROM generate_series(1, 50) g;
INSERT INTO ledger SELECT g, 'copied' FROM generate_series(1, 100) g;
"""
ROUND = """
INSERT INTO orders SELECT g + {n} * 1000, g, 'new' FROM generate_series(1, 50) g;
UPDATE orders SET paid = paid + 1 WHERE id % 3 = 0;
UPDATE orders SET id = id + 100000 WHERE id % 10 = {n} AND id < 100000;
DELETE FROM orders WHERE id % 13 = {n};
ALTER TABLE orders ADD COLUMN more{n} int;
UPDATE orders SET more{n} = {n} WHERE id % 5 = 0;
INSERT INTO loose SELECT g % 7, 'round {n}' FROM generate_series(1, 20) g;
DELETE FROM loose WHERE ctid IN (SELECT min(ctid) FROM loose GROUP BY n);
UPDATE loose SET word = word || '+' WHERE n = {n} % 5;
INSERT INTO ledger SELECT g + {n} * 1000, 'round {n}' FROM generate_series(1, 40) g;
"""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"lake_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def test_drivers_killed_at_every_place_lose_nothing_and_double_nothing(
    database: str, slot: str, tmp_path: Path, lake: Lake, lake_spark: SparkSession
) -> None:
    copying, changing = some(IN_SHORT, ALL)[lake.name]

    def killed(place: str) -> None:
        quick = {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}
        driver = Driver(database, slot, tmp_path, failpoints=place, lake=lake.name, spark=quick)
        try:
            driver.wait_killed(PATIENCE)
        finally:
            driver.close()

    def caught_up() -> Notices:
        return catch_up(tmp_path, database, slot, lake, lake_spark, "killed")

    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        if not copying:
            caught_up()
        for number, place in enumerate(copying):
            if number:
                source.execute(changes(number))
                copy_again(tmp_path)
            killed(place)
            caught_up()
            assert_same(source, lake, place)
        for number, place in enumerate(changing, max(1, len(copying))):
            source.execute(changes(number))
            killed(place)
            notices = caught_up()
            assert not notices.copied, f"{place}: the copy would hide what is wrong; {notices.heard}"
            assert_same(source, lake, place)
    assert not (lake.path / "_walrelay" / "staging").exists(), "what was landed and not taken is gone"


def changes(number: int) -> Any:
    return ROUND.format(n=number)


def copy_again(directory: Path) -> None:
    store = SqliteStore(directory / "state.sqlite", "killed")
    try:
        store.load_table_replication_states()
        store.load_table_schemas()
        resync(store)
    finally:
        store.close()


def assert_same(source: psycopg.Connection[Any], lake: Lake, place: str) -> None:
    for table in ("orders", "loose", "ledger"):
        with source.cursor(row_factory=dict_row) as cursor:
            wanted = cursor.execute(f"SELECT * FROM {table}").fetchall()
        there, here = ([tuple(sorted(row.items())) for row in rows] for rows in (wanted, lake.held(table)))
        missing, extra = Counter(there) - Counter(here), Counter(here) - Counter(there)
        assert not missing and not extra, f"after {place}, {table}: missing {missing}, too many {extra}"
