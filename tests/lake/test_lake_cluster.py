"""Lakes on a real standalone cluster: copied into, and merged, by executors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faults.pipeline_kit import drop_slot
from tests.lake.lake_kit import DeltaLake, IcebergLake
from walrelay.testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark
ROWS = 200_000
"""More than 16 MB, so that both workers get a part."""
LAKES = "tests.lake.cluster_lakes"
ROOT = Path(__file__).parents[2]
CHANGES = (
    "UPDATE t SET amount = amount + 1 WHERE id % 10 = 0",
    "UPDATE t SET id = -id WHERE id % 1000 = 1",
    "DELETE FROM t WHERE id % 7 = 3",
    f"INSERT INTO t SELECT g, now(), NULL, 0 FROM generate_series({ROWS + 1}, {ROWS + 5000}) g",
    "ALTER TABLE t ADD COLUMN more int",
    "ALTER TABLE t RENAME COLUMN tags TO labels",
    "UPDATE t SET more = id, labels = ARRAY['new'] WHERE id % 100 = 5",
    # Without a key: equal rows of which some go, and the rest is put back.
    "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE n = 1 LIMIT 5)",
    "UPDATE loose SET word = 'other' WHERE n = 2",
)


@pytest.mark.timeout(900)
def test_lakes_are_copied_into_and_merged_by_the_executors_of_a_cluster(database: str, tmp_path: Path) -> None:
    """Each is a process of its own, with a directory of its own, and gets the lakes' packages from the driver."""
    slots = {kind: f"{kind}_{database.rpartition('_')[2]}" for kind in ("delta", "iceberg")}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, tags text[], amount numeric(9,3))")
        connection.execute("CREATE TABLE loose (n int, word text); ALTER TABLE loose REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO t SELECT g, '1024-01-01'::timestamptz + g * interval '1 day', ARRAY['a', NULL, g::text],"
            f" g / 7.0 FROM generate_series(1, {ROWS}) g"
        )
        connection.execute("INSERT INTO loose SELECT g % 3, 'same' FROM generate_series(1, 1000) g")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        try:
            with SparkCluster(workers=2) as cluster:
                task = {"url": database, "directory": str(tmp_path), "master": cluster.url, "slots": slots}
                said = run_lakes({**task, "changes": CHANGES})
        finally:
            for slot in slots.values():
                drop_slot(database, slot)
        # The driver is one of them. What came later came by changes.
        assert said == {"executors": 3, "copied": {"delta": ["loose", "t"], "iceberg": ["loose", "t"]}}
        connection.execute("SET TimeZone = 'UTC'")
        for lake in (DeltaLake(tmp_path / "delta"), IcebergLake(tmp_path / "iceberg")):
            for table in ("t", "loose"):
                wanted = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
                found = [tuple(row.values()) for row in lake.held(table)]
                assert sorted(found, key=repr) == sorted(wanted, key=repr), f"{table} in {lake.name}"


def run_lakes(task: dict[str, Any]) -> dict[str, Any]:
    """What a driver of its own says at its end: a session that runs here has another master."""
    command = [sys.executable, "-m", LAKES, json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if "SparkStartError" in done.stderr and not os.environ.get("CI"):
        pytest.skip("the packages of the lakes could not be had from Maven")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
