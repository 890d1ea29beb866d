"""On a real standalone cluster: copying, reading, and a pipeline that is killed under a workload and goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.faults.capture_kit import RestingWorkload, create_tables
from tests.faults.pipeline_kit import Driver, assert_ledger_is_whole, drop_slot, finish
from tests.repetitions import some
from walrelay.postgres.source import PostgresSource
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark
ROWS = 200_000
"""More than 16 MB, so that both workers get a part."""
KILLS = ("copy.during=kill:3", "events.after_write=kill:3", "")
"""In the middle of a copy, between two writes, and anywhere."""
JOB = """
import sys
from walrelay import DuckDBDestination, Pipeline, PostgresSource
from walrelay.spark.session import spark_session
url, path, master = sys.argv[1:]
spark = spark_session(settings={"spark.master": master, "spark.executor.memory": "512m", "spark.cores.max": "2"})
Pipeline(PostgresSource(url, publication="p"), DuckDBDestination(path), spark=spark).run()
table = spark.read.format("walrelay").option("url", url).option("table", "t").load()
count, total = table.selectExpr("count(*)", "sum(id)").first()
print(spark.sparkContext.master, count, total)
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """One for all tests: three JVMs take as long to start as a test."""
    with SparkCluster(workers=2) as started:
        yield started


def test_a_cluster_of_two_workers_copies_and_reads(database: str, tmp_path: Path, cluster: SparkCluster) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, tags text[], amount numeric(9,3))")
        connection.execute(
            "INSERT INTO t SELECT g, '2024-01-01'::timestamptz + g * interval '1 s', ARRAY['a', NULL, g::text],"
            f" g / 7.0 FROM generate_series(1, {ROWS}) g"
        )
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
    path = tmp_path / "cluster.duckdb"
    command = [sys.executable, "-c", JOB, database, str(path), cluster.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    master, *counted = done.stdout.split()
    assert master.startswith("spark://") and counted == [str(ROWS), str(ROWS * (ROWS + 1) // 2)]
    assert_replicated(PostgresSource(database, publication="p"), path)


def test_a_pipeline_on_a_cluster_that_is_killed_under_a_workload_goes_on(
    database: str, tmp_path: Path, cluster: SparkCluster
) -> None:
    """Tasks run on the workers, and drivers die, one after the other."""
    workload = create_tables(database, seed=11, clients=2, large_rows=2_000)
    workload.run(transactions=150)
    bursts = RestingWorkload(workload, burst=8, rest=0.3, sample_every=10**6)
    slot = f"cluster_{database.rpartition('_')[2]}"
    try:
        with bursts.running():
            spark = {"spark.master": cluster.url, "spark.executor.memory": "512m", "spark.cores.max": "2"}
            for failpoint in some(KILLS[:2], KILLS):
                driver = Driver(database, slot, tmp_path, failpoints=failpoint, spark=spark)
                try:
                    if failpoint:
                        driver.wait_killed()
                    else:
                        driver.wait_for("ready")
                        driver.kill()
                finally:
                    driver.close()
            with bursts.paused():
                finish(database, slot, tmp_path, spark)
                assert_ledger_is_whole(database, tmp_path)
    finally:
        drop_slot(database, slot)
