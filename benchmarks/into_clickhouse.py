"""ClickHouse: a landed copy taken in by walrelay against `INSERT … FROM file()` of the same files, and changes drained.

The server is ClickHouse's engine, chdb, behind the front of the test kit, for both. What walrelay sends goes through
that front, which is Python; the plain loader reads the files where they are.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import clickhouse_connect
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.lake_merge import CHANGES
from benchmarks.machine import describe_machine
from benchmarks.tables import make_bench_table
from walrelay import ClickHouseDestination, Pipeline, PostgresSource
from walrelay.changes.rows import TableRows
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.clickhouse.destination import SPARK
from walrelay.destinations.clickhouse.dialect import DIALECT
from walrelay.model.schema import TableSchema
from walrelay.spark.needs import settings_for
from walrelay.spark.session import spark_session
from walrelay.testing import clickhouse_front
from walrelay.testing.destination_contract import ContractSource
from walrelay.testing.postgres import EmbeddedPostgres

GOAL = 0.7
PYTHON = Path(__file__).parents[1] / ".venv-emulators" / "clickhouse" / "bin" / "python"
BATCH_CHANGES = 1000
"""Of one transaction of the backlog: 600 updates, 200 inserts, 200 deletes."""


class Kept(SimpleDestination):
    """Keeps the landed files, as ClickHouse is given them."""

    name = "kept"
    dialect = DIALECT
    capabilities = Capabilities()

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rows: TableRows | None = None

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        files = []
        for file in rows.files:
            path = self._directory / Path(file.path).name
            shutil.copyfile(file.path, path)
            files.append(replace(file, path=str(path)))
        self.rows = replace(rows, files=tuple(files), spark=None)
        return WriteResult(durable=True, rows=rows.rows_total)


@contextmanager
def server(directory: Path) -> Iterator[tuple[str, Any]]:
    """A URL of a new database, and a client."""
    python = str(PYTHON if PYTHON.exists() else sys.executable)
    process = subprocess.Popen([python, clickhouse_front.__file__, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline().split()[1])
        client = clickhouse_connect.get_client(host="127.0.0.1", port=port, autogenerate_session_id=False)
        client.command("CREATE DATABASE bench")
        yield f"clickhouse://127.0.0.1:{port}/bench?maintain_every=never", client
    finally:
        process.kill()
        process.wait()


def run(rows: int, changes: int, repeat: int, console: Console) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="walrelay-bench-") as name, EmbeddedPostgres() as postgres:
        directory = Path(name)
        table = make_bench_table(postgres.create_database("bench"), rows)
        spark = spark_session(settings=settings_for(SPARK, {}))
        (directory / "files").mkdir()
        kept = Kept(directory / "files")
        Pipeline(PostgresSource(table.url, publication=table.publication), kept, mode="copy", spark=spark).run()
        assert kept.rows is not None
        with server(directory / "server") as (url, client):
            destination = ClickHouseDestination(url)
            destination.startup(DestinationContext("bench", copy_settings(), spark=lambda: spark))
            copies = _copies(destination, client, kept.rows, directory / "files", repeat)
            console.print(f"copied {rows:,} rows {repeat} times by both")
            drained = _drain(destination, client, postgres, directory, table.url, rows, changes)
            destination.shutdown()
    ours, theirs = (statistics.median(copies[name]) for name in ("walrelay", "file()"))
    result = {
        "machine": describe_machine(), "rows": rows, "changes": changes, "copy_seconds": copies,
        "copy_ratio": theirs / ours, "goal": GOAL, "drain": drained,
    }  # fmt: skip
    _show(result, ours, theirs, console)
    return result


def _copies(
    destination: ClickHouseDestination, client: Any, rows: TableRows, files: Path, repeat: int
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"walrelay": [], "file()": []}
    for lap in range(repeat + 1):  # the first warms up
        begun = time.perf_counter()
        destination.drop_table_for_copy(rows.schema)
        destination.write_table_rows(rows.schema, rows)
        taken = time.perf_counter() - begun
        plain = f"bench.plain_{uuid4().hex[:8]}"
        key = ", ".join(rows.schema.key_columns)
        columns = ", ".join(
            f"{one.name} {DIALECT.declared(one, of_key=one.name in rows.schema.key_columns)}"
            for one in rows.schema.columns
        )
        client.command(
            f"CREATE TABLE {plain} ({columns}, _version UInt128, _deleted UInt8)"
            f" ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY ({key})"
        )
        structure = columns.replace("'", "\\'")
        begun = time.perf_counter()
        client.command(
            f"INSERT INTO {plain} SELECT *, 0, 0 FROM file('{files}/*.parquet', 'Parquet', '{structure}')",
            settings={"max_insert_threads": 2},
        )
        loaded = time.perf_counter() - begun
        assert client.command(f"SELECT count() FROM {plain}") == rows.rows_total
        assert client.command("SELECT count() FROM bench.bench") == rows.rows_total
        client.command(f"DROP TABLE {plain} SYNC")
        if lap:
            found["walrelay"].append(taken)
            found["file()"].append(loaded)
    return found


def _drain(
    destination: ClickHouseDestination,
    client: Any,
    postgres: EmbeddedPostgres,
    directory: Path,
    url: str,
    rows: int,
    changes: int,
) -> dict[str, float]:
    """A backlog that is in the log already, in one batch; and what a reader then finds."""
    source = ContractSource(url, directory, "CREATE PUBLICATION contract FOR TABLE bench", ("bench",))
    try:
        source.copy(destination, "bench")
        begun_at = source.batch().to
        source.do(CHANGES.format(batches=max(1, changes // BATCH_CHANGES), rows=rows, first=rows * 10))
        begun = time.perf_counter()
        taken = destination.write_events(source.batch(begun_at)).rows
        seconds = time.perf_counter() - begun
        asked = "SELECT count(*), sum(id), sum(length(note)) FROM {}"
        there = source.connection.execute(asked.format("bench")).fetchone()  # type: ignore[call-overload]
        here = client.query(asked.format("bench.bench")).result_rows[0]
        assert tuple(map(int, there)) == tuple(map(int, here)), (there, here)
        return {"changes": taken, "seconds": seconds, "changes_per_second": taken / seconds}
    finally:
        source.close()


def _show(result: dict[str, Any], ours: float, theirs: float, console: Console) -> None:
    table = RichTable("copy", "seconds", "rows/s")
    for name, seconds in (
        ("walrelay, landed files to a table that readers see", ours),
        ("INSERT … FROM file()", theirs),
    ):
        table.add_row(name, f"{seconds:.2f}", f"{result['rows'] / seconds:,.0f}")
    console.print(table)
    console.print(f"walrelay is at {result['copy_ratio']:.2f} of file(); the goal is {GOAL}")
    drained = result["drain"]
    console.print(
        f"drained {drained['changes']:,} changes in {drained['seconds']:.1f} s: {drained['changes_per_second']:,.0f}/s"
    )
