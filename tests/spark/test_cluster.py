"""The same copy on a real standalone cluster gives the same result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import psycopg
import pytest

from walrelay.testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark
JOB = """
import sys
from walrelay import DuckDBDestination, Pipeline, PostgresSource
from walrelay.spark.session import spark_session
url, path, master = sys.argv[1:]
settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.cores.max": "2"} if master else {}
spark = spark_session(settings=settings)
Pipeline(PostgresSource(url, publication="p"), DuckDBDestination(path), spark=spark).run()
table = spark.read.format("walrelay").option("url", url).option("table", "t").load()
print(spark.sparkContext.master, table.count(), table.agg({"id": "sum"}).collect()[0][0])
spark.stop()
"""


def run(url: str, path: Path, master: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", JOB, url, str(path), master], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(path: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute("SELECT * FROM public.t ORDER BY id").fetchall()


def test_a_cluster_of_two_workers_copies_what_local_spark_copies(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, tags text[], amount numeric(9,3))")
        connection.execute(
            "INSERT INTO t SELECT g, '2024-01-01'::timestamptz + g * interval '1 s', ARRAY['a', NULL, g::text],"
            " g / 7.0 FROM generate_series(1, 200000) g"
        )
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
    local = run(database, tmp_path / "local.duckdb", "")
    with SparkCluster(workers=2) as cluster:
        distributed = run(database, tmp_path / "cluster.duckdb", cluster.url)
    assert local.split() == ["local[*]", "200000", "20000100000"]
    assert distributed.startswith("spark://") and distributed.split()[1:] == local.split()[1:]
    assert contents(tmp_path / "cluster.duckdb") == contents(tmp_path / "local.duckdb")
