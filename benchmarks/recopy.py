"""What other tables notice while one is copied again: the age of their newest row at the destination, before and
meanwhile."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

import duckdb
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


class _Ages:
    """Looks at the destination ten times a second, as another program would."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stopping = threading.Event()
        self.seen: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Ages:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                with duckdb.connect(str(self._file), read_only=True) as connection:
                    row = connection.execute("SELECT epoch(max(at)) FROM public.ticks").fetchone()
            except duckdb.Error:
                continue  # the pipeline has it open
            if row is not None and row[0] is not None:
                now = time.time()
                self.seen.append((now, now - row[0]))


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
                with _Ages(file) as ages:
                    time.sleep(QUIET_SECONDS)
                    altered = time.time()
                    with psycopg.connect(server.url, autocommit=True) as connection:
                        connection.execute("ALTER TYPE mood RENAME VALUE 'glad' TO 'merry'")
                    _wait_renamed(pipeline, file)
                    copied = time.time()
                stopping.set()
        finally:
            stopping.set()
            writer.join()
    before = [age for at, age in ages.seen if at < altered]
    meanwhile = [age for at, age in ages.seen if altered <= at <= copied]
    console.print(f"{rows:,} rows copied again in {copied - altered:.1f} s")
    for name, found in (("before", before), ("meanwhile", meanwhile)):
        console.print(
            f"age of the other table's newest row {name}: median {statistics.median(found) * 1000:.0f} ms,"
            f" worst {max(found) * 1000:.0f} ms ({len(found)} looks)"
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


def _wait_renamed(pipeline: Pipeline, file: Path) -> None:
    begun = False
    while True:
        status = pipeline.status()
        phases = {} if status is None else {one.name.name: one.phase for one in status.tables}
        begun = begun or phases.get("large") != "ready"
        if begun and phases.get("large") == "ready":
            return
        time.sleep(0.05)
