"""Copy and changes joined: the destination equals the source, whatever happened meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.spark.live_kit import Live, phases, table
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.destinations.memory import MemoryDestination
from walrelay.errors import ConfigError, CopyFailedError, LineageError, WalrelayError
from walrelay.pipeline import Pipeline
from walrelay.stores.failures import StoreInUseError
from walrelay.stores.memory import MemoryStore
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.faults import FaultyDestination, LastingFaultError
from walrelay.testing.workload import Workload
from walrelay.workers import live as live_module

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def live(database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 0.1)
    made = Live(database, tmp_path, spark)
    yield made
    made.close()


@pytest.fixture
def shop(live: Live) -> Live:
    """Three small tables: one keyed, one that is only appended to and has no key, one that is changed whole."""
    live.sql(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "CREATE TABLE appended (n int, v text)",
        "CREATE TABLE whole (n int, v text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE keyed, appended, whole",
    )
    change(live, 0)
    return live


def change(live: Live, round_: int) -> None:
    """A few transactions in all three tables; each round its own rows."""
    n = 10 * round_
    live.sql(
        f"INSERT INTO keyed SELECT g, 'a' FROM generate_series({n}, {n} + 4) AS g",
        f"INSERT INTO appended SELECT g, 'a' FROM generate_series({n}, {n} + 4) AS g; INSERT INTO appended VALUES ({n})",
        f"INSERT INTO whole SELECT g % 2, 'a' FROM generate_series({n}, {n} + 4) AS g",
        f"UPDATE keyed SET v = 'b' WHERE id = {n}; UPDATE keyed SET id = {n} + 9 WHERE id = {n} + 1;"
        f" DELETE FROM keyed WHERE id = {n} + 2",
        "UPDATE whole SET v = 'b' WHERE ctid = (SELECT min(ctid) FROM whole)",
        "DELETE FROM whole WHERE ctid = (SELECT max(ctid) FROM whole)",
    )


def appended(live: Live) -> list[int]:
    """The numbers in the destination's append-only table."""
    with duckdb.connect(str(live.file), read_only=True) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM public.appended ORDER BY n").fetchall()]


# ------------------------------------------------------------------------------------------------- copy and changes


@pytest.mark.parametrize("via_root", [False, True])
def test_tables_copied_under_a_workload_are_equal_also_after_a_restart(live: Live, via_root: bool) -> None:
    workload = Workload(live.url, seed=11 + via_root, clients=3, large_rows=1500, via_partition_root=via_root)
    with psycopg.connect(live.url, autocommit=True) as connection:
        workload.create(connection)
    workload.run(transactions=300)
    with live.running() as pipeline:
        with workload.running():
            status = live.wait_ready(pipeline)
            more = status.changes + 500
            live.wait(pipeline, lambda status: status.changes > more, "changes are applied")
        assert {str(one.name) for one in status.tables} == set(workload.tables)
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
    workload.run(transactions=200)
    # All that is remembered comes from the file of the store, and nothing is copied again.
    summary = live.pipeline().run(until="caught-up")
    assert live.heard.started == [] and summary.tables == ()
    assert summary.changes > 0
    assert_replicated(live.source, live.file)
