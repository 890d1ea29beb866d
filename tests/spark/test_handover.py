"""Transactions that straddle the snapshot of a table's copy: each is in the copy or in its changes, in exactly one.

Every table has a schedule of its own, from a seed. The tables are only appended to and have no key, so that what came
twice shows as well as what is missing.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.repetitions import some
from tests.spark.live_kit import Live
from walrelay.config.settings import copy_settings
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.failpoints import ENVIRONMENT, armed
from walrelay.workers import catch_up
from walrelay.workers.status import PipelineStatus

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
TABLES = 25
RUNS = 4
CLIENTS = 5
WINDOW = 0.15
"""Seconds for which each table's copy is held up, after its snapshot and before its catch-up."""


@pytest.fixture
def live(database: str, tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    made = Live(database, tmp_path, spark)
    yield made
    made.close()


class Schedules(threading.Thread):
    """A client that keeps transactions on its tables open, over and over, until it is told to stop.

    Each transaction inserts into some of the client's tables, with savepoints that are released or rolled back, waits
    in between for some time, mostly short, sometimes longer than a whole copy takes, and is committed or not.
    """

    def __init__(self, url: str, seed: int, tables: list[str], stop: threading.Event) -> None:
        super().__init__(name=f"schedules {seed}", daemon=True)
        self._url = url
        self._random = random.Random(seed)
        self._tables = tables
        self._halt = stop
        self._number = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._halt.is_set():
                    self._transaction(connection)
        except BaseException as error:
            self.failure = error

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._random
        pause = chance.choice([0.0, 0.0, 0.01, 0.05, 0.05, 0.3, 1.5])
        connection.execute("BEGIN")
        if chance.random() < 0.3:
            connection.execute("SET LOCAL synchronous_commit = off")
        for table in chance.sample(self._tables, chance.randint(1, len(self._tables))):
            self._insert(connection, table)
            if chance.random() < 0.5:
                connection.execute("SAVEPOINT s")
                self._insert(connection, table)
                connection.execute(chance.choice(["RELEASE s", "ROLLBACK TO s"]))
                self._insert(connection, table)
            self._halt.wait(pause * chance.random())
        connection.execute("ROLLBACK" if chance.random() < 0.15 else "COMMIT")
        self._halt.wait(0.05 * chance.random())

    def _insert(self, connection: psycopg.Connection[Any], table: str) -> None:
        self._number += 1
        connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(sql.Identifier(table)), (self._number,))


@pytest.mark.parametrize("run", some([0, 3], list(range(RUNS))))
def test_transactions_around_the_snapshot_arrive_once(live: Live, monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    tables = [f"t{number}" for number in range(TABLES)]
    live.sql(*(f"CREATE TABLE {name} (n int)" for name in tables), "CREATE PUBLICATION p FOR ALL TABLES")
    # In two of the runs the log lags behind the copies.
    monkeypatch.setenv(ENVIRONMENT, "segment.before_publish=sleep:0.3" if run % 2 else "")
    # In two of them a table catches up in many pieces.
    monkeypatch.setattr(catch_up, "PIECE_BYTES", 10_000 if run >= 2 else catch_up.PIECE_BYTES)
    stop = threading.Event()
    clients = [Schedules(live.url, 100 * run + number, tables[number::CLIENTS], stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    settings = copy_settings(max_tables=8, retry_delay=0.05)
    with (
        armed(f"copy.during=sleep:{WINDOW},catchup.before=sleep:{WINDOW}"),
        live.running(settings=settings) as pipeline,
    ):
        try:
            live.wait_ready(pipeline)
        finally:
            stop.set()
            for client in clients:
                client.join()
        assert [client.failure for client in clients if client.failure] == []
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
    with psycopg.connect(live.url) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in tables]  # type: ignore[call-overload]
    assert all(count is not None and count[0] > 0 for count in counts), "every table had its share"


# -------------------------------------------------------------------------------------------- beside a large copy

LARGE = 2_000_000
LONGEST_GAP = 3.0


class Ticks(threading.Thread):
    """Commits a row twenty times a second, and now and then changes the large table as well."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__(name="ticks", daemon=True)
        self._url = url
        self._halt = stop
        self.failure: BaseException | None = None

    def run(self) -> None:
        chance = random.Random(9)
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("SET synchronous_commit = on")
                while not self._halt.wait(0.05):
                    connection.execute("INSERT INTO ticks (at) VALUES (clock_timestamp())")
                    if chance.random() < 0.3:
                        one = chance.randint(1, LARGE)
                        connection.execute("UPDATE large SET note = 'changed' WHERE id = %s", (one,))
        except BaseException as error:
            self.failure = error


def test_other_tables_stay_current_while_a_large_one_is_copied_and_catches_up(live: Live) -> None:
    live.sql(
        "CREATE TABLE ticks (id bigserial PRIMARY KEY, at timestamptz)",
        "CREATE TABLE large (id int PRIMARY KEY, note text)",
        f"INSERT INTO large SELECT g, 'note ' || g FROM generate_series(1, {LARGE}) g",
        "CREATE PUBLICATION p FOR TABLE ticks",
    )
    stop = threading.Event()
    ticks = Ticks(live.url, stop)
    ticks.start()
    arrivals: list[float] = []
    with live.running() as pipeline:
        try:
            first = live.wait_ready(pipeline, "public.ticks").changes
            live.wait(pipeline, lambda status: status.changes > first, "the first tick")
            live.sql("ALTER PUBLICATION p ADD TABLE large")
            seen = 0

            def large_is_ready(status: PipelineStatus) -> bool:
                nonlocal seen
                if status.changes > seen:  # before the large one is ready these are ticks
                    seen = status.changes
                    arrivals.append(time.monotonic())
                return any(str(one.name) == "public.large" and one.phase == "ready" for one in status.tables)

            live.wait(pipeline, large_is_ready, "the large table is ready")
        finally:
            stop.set()
            ticks.join()
        assert ticks.failure is None
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert len(gaps) > 10 and max(gaps) <= LONGEST_GAP, f"a gap of {max(gaps):.1f} s among {len(gaps)}"


# ------------------------------------------------------------------------------------------------- across tables


class Transfers(threading.Thread):
    """Moves money between two tables whose sum never changes."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__(name="transfers", daemon=True)
        self._url = url
        self._halt = stop
        self.failure: BaseException | None = None

    def run(self) -> None:
        chance = random.Random(5)
        try:
            with psycopg.connect(self._url) as connection:
                while not self._halt.wait(0.005):
                    one, other = chance.sample(["a", "b"], 2)
                    change = sql.SQL("UPDATE {} SET balance = balance + %s WHERE id = %s")
                    amount = chance.randint(1, 50)
                    connection.execute(change.format(sql.Identifier(one)), (amount, chance.randint(1, 9)))
                    connection.execute(change.format(sql.Identifier(other)), (-amount, chance.randint(1, 9)))
                    connection.commit()
        except BaseException as error:
            self.failure = error


READER = """
import sys, time, duckdb
while True:
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            row = connection.execute(
                "SELECT (SELECT sum(balance) FROM public.a) + (SELECT sum(balance) FROM public.b)"
            ).fetchone()
        print(row[0], flush=True)
    except duckdb.IOException:
        pass  # somebody else has the file just now
    time.sleep(0.01)
"""


@contextmanager
def reading(path: Path, seen: list[str]) -> Iterator[None]:
    """Another program that looks at the file, over and over."""
    reader = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    lines = reader.stdout
    thread = threading.Thread(target=lambda: seen.extend(line.strip() for line in lines))
    thread.start()
    try:
        yield
    finally:
        reader.kill()
        thread.join()
        reader.wait()


def test_a_reader_never_sees_half_a_transfer(live: Live) -> None:
    live.sql(
        "CREATE TABLE a (id int PRIMARY KEY, balance numeric(12, 2))",
        "CREATE TABLE b (id int PRIMARY KEY, balance numeric(12, 2))",
        "INSERT INTO a SELECT g, 1000 FROM generate_series(1, 9) AS g",
        "INSERT INTO b SELECT g, 1000 FROM generate_series(1, 9) AS g",
        "CREATE PUBLICATION p FOR TABLE a, b",
    )
    stop = threading.Event()
    transfers = Transfers(live.url, stop)
    transfers.start()
    seen: list[str] = []
    with live.running() as pipeline:
        try:
            until = live.wait_ready(pipeline).changes + 400
            with reading(live.file, seen):
                live.wait(pipeline, lambda status: status.changes >= until and len(seen) >= 50, "enough was seen")
        finally:
            stop.set()
            transfers.join()
        assert transfers.failure is None
        live.wait_current(pipeline)
    assert set(seen) == {"18000.00"}
    assert_replicated(live.source, live.file)
