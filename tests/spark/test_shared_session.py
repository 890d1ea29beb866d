"""A pipeline in a Spark that others use too: it touches only what is its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.capture_kit import wait_until
from walrelay.destinations.memory import MemoryDestination
from walrelay.errors import CopyFailedError
from walrelay.model.names import TableName
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.workers.report import Silent

pytestmark = pytest.mark.spark


class Stopper(Silent):
    """Stops the pipeline as soon as it copies."""

    pipeline: Pipeline

    def table_started(self, table: TableName, attempt: int) -> None:
        self.pipeline.shutdown()


def wait_for_file(paths: Iterable[str]) -> Iterator[int]:
    for path in paths:
        while not Path(path).exists():
            time.sleep(0.02)
        yield 1


def described(spark: SparkSession) -> set[str]:
    """What Spark's pages say of its jobs."""
    jobs: Any = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[attr-defined]
    found = (jobs.apply(number).description() for number in range(jobs.size()))
    return {one.get() for one in found if one.isDefined()}


def test_a_pipeline_that_is_stopped_leaves_the_jobs_of_others_alone(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    source, flag, context = PostgresSource(database, publication="p"), tmp_path / "flag", spark.sparkContext
    with ThreadPoolExecutor(1) as user:
        job = user.submit(lambda: context.parallelize([str(flag)], 1).mapPartitions(wait_for_file).count())
        try:
            wait_until(lambda: bool(context.statusTracker().getActiveJobsIds()), "the user's job runs")
            stopper = Stopper()
            stopper.pipeline = Pipeline(source, MemoryDestination(), spark=spark, listener=stopper, id="shop")
            with pytest.raises(CopyFailedError, match=r"public\.orders"):
                stopper.pipeline.run()
            assert not job.done()
        finally:
            flag.touch()
        assert job.result(60) == 1
    Pipeline(source, MemoryDestination(), spark=spark, id="shop").run()
    wait_until(lambda: "walrelay shop: copy public.orders" in described(spark), "the copy is described")
