"""A long life of pipelines that are killed at random: `make soak`. Afterwards nothing may be missing or double."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import psycopg
from rich.console import Console

from tests.faults.capture_kit import RestingWorkload, create_tables
from tests.faults.pipeline_kit import Driver, assert_ledger_is_whole, finish
from walrelay.testing.postgres import EmbeddedPostgres

PLACES = (
    "copy.during",
    "copy.after_finished",
    "catchup.before",
    "catchup.after",
    "events.before_write",
    "events.after_write",
    "progress.before_record",
    "progress.after_record",
)
SLOT = "soak"


def soak(kills: int, seed: int, check_every: int, console: Console) -> None:
    """Kill so many drivers, and some captures, at moments that the seed chooses; compare now and then, and last."""
    chance = random.Random(seed)
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory(prefix="walrelay-soak-") as name:
        directory = Path(name)
        url = server.create_database("soak")
        bursts = RestingWorkload(
            create_tables(url, seed=seed, clients=2, large_rows=3000), burst=8, rest=0.3, sample_every=10**6
        )
        bursts.workload.run(transactions=200)
        begun = time.monotonic()
        with bursts.running():
            for number in range(1, kills + 1):
                how = _kill_one(url, directory, chance)
                console.print(f"{number:3} of {kills}  {time.monotonic() - begun:5.0f} s  {how}")
                if number % 5 == 0:
                    _add_table(url, number)
                if number % check_every == 0:
                    with bursts.paused():
                        _check(url, directory)
                    console.print("     source and destination are equal")
        _check(url, directory)
    console.print(f"{kills} kills, {bursts.committed:,} transactions: nothing is missing, nothing is double")


def _kill_one(url: str, directory: Path, chance: random.Random) -> str:
    """One driver, to its end: at a failpoint, or at any moment, perhaps with its capture."""
    place = chance.choice(PLACES) if chance.random() < 0.5 else ""
    at = f"{place}=kill:{chance.randint(1, 5)}" if place else ""
    driver = Driver(url, SLOT, directory, failpoints=at)
    try:
        driver.wait_for("running")
        patience = chance.uniform(0, 8)
        deadline = time.monotonic() + patience
        capture_dies = chance.random() < 0.3
        while driver.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            if capture_dies and deadline - time.monotonic() < patience / 2 and (capture := driver.capture()):
                capture.kill()
                capture_dies = False
        if driver.process.poll() is None:
            driver.kill()
            return f"at any moment, after {patience:.1f} s"
        driver.wait_killed()
        return at
    finally:
        driver.close()


def _add_table(url: str, number: int) -> None:
    """So that there is something to copy again and again."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE late_{number} (n int)")  # type: ignore[call-overload]
        connection.execute(f"ALTER PUBLICATION p ADD TABLE late_{number}")  # type: ignore[call-overload]
        connection.execute(f"INSERT INTO late_{number} SELECT generate_series(1, 5000)")  # type: ignore[call-overload]


def _check(url: str, directory: Path) -> None:
    finish(url, SLOT, directory)
    assert_ledger_is_whole(url, directory)
