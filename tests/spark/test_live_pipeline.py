"""Copy and changes joined: the destination equals the source, whatever happened meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from walrelay.control.agreement import compare
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.stores.memory import MemoryStore
from walrelay.testing.workload import Workload

pytestmark = pytest.mark.spark


def pipeline(url: str, directory: Path, spark: SparkSession, slot: str, **more: object) -> Pipeline:
    return Pipeline(
        PostgresSource(url, publication="p"),
        DuckDBDestination(directory / "out.duckdb"),
        more.pop("store", None) or MemoryStore(),  # type: ignore[arg-type]
        mode="both",
        spark=spark,
        log=directory / "log",
        slot=slot,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("seed", [1])
def test_tables_are_copied_while_they_change_and_end_up_equal(
    database: str, tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    workload = Workload(database, seed=seed, clients=3, large_rows=5000)
    slot = f"live_{uuid4().hex[:10]}"
    with psycopg.connect(database, autocommit=True) as connection:
        workload.create(connection)
        workload.run(transactions=500)
        store = MemoryStore()
        running = pipeline(database, tmp_path, spark, slot, store=store)
        with workload.running():
            running.start()
            deadline = time.monotonic() + 60
            while not (status := running.status()) or not all(t.phase == "ready" for t in status.tables):
                assert time.monotonic() < deadline, status
                time.sleep(0.1)
                running.wait(0)
            time.sleep(3)
        running.shutdown()
        running.wait()
        summary = pipeline(database, tmp_path, spark, slot, store=store).run(until="caught-up")
        assert not summary.failed
        print(summary)
        print(compare(database, tmp_path / "out.duckdb", "p"))
