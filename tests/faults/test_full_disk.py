"""A disk that fills up while copies land: a named error, and no half file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

TASK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.errors import WalrelayError
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.model.ranges import CtidRange
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.model.names import TableName
from walrelay.spark.copy_task import CopyTask, land_range
source = PostgresSource(sys.argv[1])
with exported_snapshot(source, application="test") as snapshot:
    schema = read_schema(snapshot.connection, find_table(snapshot.connection, TableName("public", "t")))
    task = CopyTask(source, schema, snapshot.name, DUCKDB, "null", 65536, 2**28, "test", sys.argv[2])
    try:
        land_range(task, CtidRange(schema.leaves[0]))
    except WalrelayError as error:
        print(error.code)
"""


def test_a_full_disk_is_named_and_leaves_no_half_file(database: str, tmp_path: Path) -> None:
    """A limit on the size of files makes the kernel refuse to write, as it does when the disk is full."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g")
    done = subprocess.run(
        [sys.executable, "-c", TASK, database, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "staging.disk_full\n", done.stderr
    assert list(tmp_path.iterdir()) == []
