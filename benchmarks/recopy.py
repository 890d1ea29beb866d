"""What other tables notice while one is copied again: the wait from a row's commit until it is visible, before and
meanwhile."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from rich.console import Console

from walrelay import DuckDBDestination, Pipeline, PostgresSource
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.workers.report import Silent

RATE = 50.0
"""Rows a second into the other table."""
QUIET_SECONDS = 20.0


class _Heard(Silent):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, message: str) -> None:
        self.notices.append(message)


def measure_recopy(rows: int, console: Console) -> None:
    """Rename an enum's value in a table of so many rows, and watch a table that is written to all the time."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for statement in (
                "CREATE TYPE mood AS ENUM ('glad', 'sad')",
                "CREATE TABLE large (id int PRIMARY KEY, m mood, t text)",
                f"INSERT INTO large SELECT g, 'glad', md5(g::text) FROM generate_series(1, {rows}) AS g",
                "CREATE TABLE ticks (id int PRIMARY KEY, at timestamptz)",
                "CREATE PUBLICATION p FOR TABLE large, ticks",
            ):
                connection.execute(statement)  # type: ignore[call-overload]
        file, heard = Path(directory) / "out.duckdb", _Heard()
        pipeline = Pipeline(
            PostgresSource(server.url, publication="p"),
            DuckDBDestination(file),
            SqliteStore(Path(directory) / "state.sqlite", "recopy"),
            "both",
            log=Path(directory) / "log",
            listener=heard,
        )
        stopping = threading.Event()
        writer = threading.Thread(target=_tick, args=(server.url, stopping))
        writer.start()
        try:
            with pipeline:
                _wait_ready(pipeline)
                time.sleep(QUIET_SECONDS / 2)
                seen_enough = Path(directory) / "seen-enough"
                command = [sys.executable, "-m", "benchmarks.duckdb_reader", str(file), "3600", str(seen_enough)]
                with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
                    time.sleep(QUIET_SECONDS / 4)  # the reader starts, and sees what was there before
                    begun = time.time()
                    time.sleep(QUIET_SECONDS)
                    altered = time.time()
                    with psycopg.connect(server.url, autocommit=True) as connection:
                        connection.execute("ALTER TYPE mood RENAME VALUE 'glad' TO 'merry'")
                    _wait_copied_again(pipeline)
                    copied = time.time()
                    time.sleep(QUIET_SECONDS / 4)  # what waited meanwhile is seen
                    seen_enough.touch()
                    seen = json.loads(reader.communicate()[0])
                stopping.set()
        finally:
            stopping.set()
            writer.join()
    before = [wait for at, wait in seen if at < altered and at - wait >= begun]
    meanwhile = [wait for at, wait in seen if at >= altered and at - wait <= copied]
    console.print(f"{rows:,} rows copied again in {copied - altered:.1f} s")
    for name, found in (("before", before), ("meanwhile", meanwhile)):
        console.print(
            f"from commit to visible, the other table's rows {name}: median {statistics.median(found) * 1000:.0f} ms,"
            f" worst {max(found) * 1000:.0f} ms ({len(found)} rows)"
        )


def _tick(url: str, stopping: threading.Event) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        number = 0
        while not stopping.wait(1 / RATE):
            number += 1
            connection.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (number,))


def _wait_ready(pipeline: Pipeline) -> None:
    while (
        (status := pipeline.status()) is None or not status.tables or any(one.phase != "ready" for one in status.tables)
    ):
        time.sleep(0.1)


def _wait_copied_again(pipeline: Pipeline) -> None:
    begun = False
    while True:
        status = pipeline.status()
        phases = {} if status is None else {one.name.name: one.phase for one in status.tables}
        begun = begun or phases.get("large") != "ready"
        if begun and phases.get("large") == "ready":
            return
        time.sleep(0.05)
