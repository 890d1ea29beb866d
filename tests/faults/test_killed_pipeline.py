"""A driver that is killed at every place it passes, under a running workload: afterwards nothing is missing or double.

One long life: each driver goes on where the one before was killed, so that the kills also meet each other's leftovers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.faults.capture_kit import RestingWorkload, create_tables, wait_until
from tests.faults.pipeline_kit import OF_LAKES, Driver, assert_ledger_is_whole, drop_slot, finish
from tests.repetitions import some
from walrelay.failpoints import NAMES
from walrelay.model.lsn import Lsn

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]

KILLS = (
    "copy.during=kill:2",
    "destination.piece=kill:2",
    "copy.after_finished=kill:2",
    "catchup.before=kill:2",
    "catchup.after=kill:2",
    "events.before_write=kill:2",
    "events.after_write=kill:2",
    "destination.before_commit=kill:12",
    "destination.ddl=kill:2",
    "progress.before_record=kill:2",
    "progress.after_record=kill:2",
)
"""The copy's first: every driver must have something left to copy when it comes to its place."""
IN_SHORT = ("destination.piece=kill:2", "destination.before_commit=kill:12", "destination.ddl=kill:2")
"""One in a copy, one among changes, one in between; at other places helpers die in test_killed_helpers.py."""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"killed_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def test_every_place_of_the_driver_is_killed() -> None:
    ours = {"copy", "catchup", "events", "destination", "progress"}
    killed = {kill.partition("=")[0] for kill in KILLS}
    assert killed | OF_LAKES == {name for name in NAMES if name.partition(".")[0] in ours}


def test_drivers_killed_at_every_place_lose_nothing_and_double_nothing(
    database: str, slot: str, tmp_path: Path
) -> None:
    workload = create_tables(database, seed=71, clients=2, large_rows=800)
    workload.run(transactions=100)
    bursts = RestingWorkload(workload, burst=6, rest=0.4, sample_every=10**6)
    with bursts.running():
        for kill in some(IN_SHORT, KILLS):
            driver = Driver(database, slot, tmp_path, failpoints=kill, piece_bytes=8192)
            try:
                if kill.startswith("destination.ddl"):
                    driver.wait_for("ready")
                    with bursts.paused():
                        change_shapes(database)
                    add_columns_until_killed(database, driver)
                driver.wait_killed()
            finally:
                driver.close()
        driver = Driver(database, slot, tmp_path)
        try:
            # Its capture dies, and is started again; then it dies itself, at no special place.
            driver.wait_for("ready")
            capture = driver.capture()
            assert capture is not None
            capture.kill()
            assert "killed by signal 9; it starts again" in driver.wait_for("notice capture")
            before = applied(tmp_path)
            wait_until(lambda: applied(tmp_path) > before, "it goes on", 60)
            driver.kill()
        finally:
            driver.close()
    finish(database, slot, tmp_path)
    assert_ledger_is_whole(database, tmp_path)


def test_spark_killed_in_a_copy_and_among_changes_is_named_and_the_next_run_goes_on(
    database: str, slot: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT n::int AS id, md5(n::text) AS word FROM generate_series(1, 200000) n"
        )
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        for word in ("running", "ready"):
            driver = Driver(database, slot, tmp_path)
            try:
                driver.wait_for(word)
                connection.execute("UPDATE t SET word = %s WHERE id <= 1000", (word,))
                wait_until(lambda driver=driver: bool(driver.workers()), "Spark works")  # type: ignore[misc]
                jvm = driver.jvm()
                assert jvm is not None
                jvm.kill()
                assert "Spark" in driver.wait_for("failed spark.lost")
                assert driver.process.wait(60) == 1
            finally:
                driver.close()
            assert "Traceback" not in (tmp_path / "driver.err").read_text()
    finish(database, slot, tmp_path)


def change_shapes(url: str) -> None:
    """Two tables that every workload writes to."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE ledger ADD COLUMN extra_mark text")
        connection.execute("ALTER TABLE ledger ALTER COLUMN extra_mark TYPE varchar(80)")
        connection.execute("ALTER TABLE items ADD COLUMN extra_mark text")


def add_columns_until_killed(url: str, driver: Driver) -> None:
    """A table that was altered twice before anybody looked may be copied again instead of altered, and so not come to
    the place: columns that come one by one are added in place."""
    with psycopg.connect(url, autocommit=True) as connection:
        for n in range(40):
            if driver.has_ended(within=2):
                return
            connection.execute(f"ALTER TABLE items ADD COLUMN extra_{n} text")


def applied(directory: Path) -> Lsn:
    """How far the destination is, by its own word."""
    while True:
        try:
            with duckdb.connect(str(directory / "out.duckdb"), read_only=True) as connection:
                row = connection.execute("SELECT applied_lsn FROM _walrelay.progress WHERE table_id = 0").fetchone()
                return Lsn(0) if row is None else Lsn.parse(row[0])
        except duckdb.IOException:
            continue
