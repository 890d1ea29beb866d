"""The whole pipeline: a backlog drained from the slot into DuckDB, against `pg_recvlogical` to nowhere; and latency.

The pipeline runs and is ready; its capture is stopped (SIGSTOP) while the backlog is made, and goes on when the clock
starts. So the figures hold no start-up.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.change_speed import _pg_recvlogical
from benchmarks.tables import make_bench_table
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.model.lsn import Lsn
from walrelay.pipeline import Pipeline
from walrelay.postgres.slot import flushed_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import spark_session
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.postgres import EmbeddedPostgres

GOALS = {"inserts": 0.85, "mixed": 0.7}
GOAL_P50, GOAL_P99 = 0.350, 1.0
INSERTS = """
DO $$ BEGIN
    FOR batch IN 0..%(last)s LOOP
        INSERT INTO %(table)s SELECT * FROM bench WHERE id > batch * 1000 AND id <= (batch + 1) * 1000;
        COMMIT;
    END LOOP;
END $$
"""
MIXED = """
DO $$ BEGIN
    FOR batch IN 0..%(last)s LOOP
        INSERT INTO %(table)s SELECT * FROM bench WHERE id > batch * 400 AND id <= (batch + 1) * 400;
        UPDATE %(table)s SET amount = amount + 1, note = note || '!'
        WHERE id IN (SELECT 1 + (random() * ((batch + 1) * 400 - 1))::bigint FROM generate_series(1, 600));
        COMMIT;
    END LOOP;
END $$
"""


@dataclass
class Drain:
    """One kind of load."""

    kind: str
    changes: int = 0
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.theirs) / statistics.median(self.ours)


@dataclass(frozen=True)
class Latency:
    rate: float
    p50: float
    p99: float
    worst: float


def measure_pipeline(
    rows: int, repeat: int, rate: int, seconds: float, console: Console
) -> tuple[list[Drain], Latency]:
    drains = [Drain("inserts"), Drain("mixed")]
    names = [f"{drain.kind}_{number}" for drain in drains for number in range(repeat + 1)]
    settings = {"max_replication_slots": "64", "max_wal_senders": "64", "max_wal_size": "16GB"}
    with EmbeddedPostgres(settings=settings) as server, tempfile.TemporaryDirectory() as directory:
        make_bench_table(server.url, rows)
        with psycopg.connect(server.url, autocommit=True, row_factory=psycopg.rows.namedtuple_row) as connection:
            for name in names:
                connection.execute(f"CREATE TABLE {name} (LIKE bench INCLUDING ALL)")
            connection.execute("CREATE TABLE ticks (id bigserial PRIMARY KEY, at timestamptz DEFAULT now())")
            connection.execute(f"CREATE PUBLICATION backlog FOR TABLE {', '.join(names)}, ticks")
            with console.status("starting the pipeline"), running(server, Path(directory)) as pipeline:
                for drain in drains:
                    for number in range(repeat + 1):
                        _one_round(server, connection, pipeline, drain, number, rows, console)
                latency = _latency(connection, server.url, Path(directory) / "out.duckdb", rate, seconds, console)
    return drains, latency


@contextmanager
def running(server: EmbeddedPostgres, directory: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(
        PostgresSource(server.url, publication="backlog"),
        DuckDBDestination(directory / "out.duckdb"),
        SqliteStore(directory / "state.sqlite", "bench"),
        mode="both",
        spark=spark_session(),
        log=directory / "log",
        slot="bench",
    )
    pipeline.start()
    try:
        _until(pipeline, lambda: all(table.phase == "ready" for table in _status(pipeline).tables))
        yield pipeline
    finally:
        pipeline.shutdown()
        pipeline.wait()


def _one_round(
    server: EmbeddedPostgres,
    connection: psycopg.Connection[Any],
    pipeline: Pipeline,
    drain: Drain,
    number: int,
    rows: int,
    console: Console,
) -> None:
    slot, table = f"theirs_{drain.kind}_{number}", f"{drain.kind}_{number}"
    statement, last = (INSERTS, rows // 1000 - 1) if drain.kind == "inserts" else (MIXED, rows // 1000 - 1)
    with console.status(f"{drain.kind}, round {number}: making the backlog"):
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        capture = _status(pipeline).capture
        assert capture is not None
        os.kill(capture.pid, signal.SIGSTOP)
        connection.execute(statement % {"last": last, "table": table})
        connection.execute("CHECKPOINT")
        end = flushed_lsn(connection)
    with console.status(f"{drain.kind}, round {number}: draining into DuckDB"):
        before = _status(pipeline).changes
        begun = time.monotonic()
        os.kill(capture.pid, signal.SIGCONT)
        _until(pipeline, lambda: _applied(pipeline, end))
        ours = time.monotonic() - begun
        drain.changes = _status(pipeline).changes - before
    with console.status(f"{drain.kind}, round {number}: pg_recvlogical"):
        theirs, _ = _pg_recvlogical(server, slot, str(end))
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    if number:
        drain.ours.append(ours)
        drain.theirs.append(theirs)


def _applied(pipeline: Pipeline, end: Lsn) -> bool:
    status = _status(pipeline)
    capture = status.capture
    assert status.position is not None and status.log_end is not None and capture is not None
    # What comes after the last change of ours, up to `end`, is nothing: the log's head says so.
    return status.position >= status.log_end and pipeline._live is not None and pipeline._live.head() >= end


def _status(pipeline: Pipeline) -> Any:
    while (status := pipeline.status()) is None:
        pipeline.wait(0.01)
    return status


def _until(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    while not condition():
        assert pipeline.wait(0.005) is None, "the pipeline ended"


def _latency(
    connection: psycopg.Connection[Any], url: str, path: Path, rate: int, seconds: float, console: Console
) -> Latency:
    """From a commit to the row's being visible to a reader who opens the file."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as writer:
            begun, count = time.monotonic(), 0
            while not stop.is_set():
                wait = begun + count / rate - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                writer.execute("INSERT INTO ticks DEFAULT VALUES")
                count += 1

    thread = threading.Thread(target=write)
    with console.status(f"{rate} transactions a second for {seconds:.0f} s"):
        thread.start()
        reader = [sys.executable, "-m", "benchmarks.duckdb_reader", str(path), str(seconds)]
        waits: list[float] = json.loads(subprocess.run(reader, check=True, capture_output=True).stdout)
        stop.set()
        thread.join()
    late = np.array(waits[len(waits) // 10 :])
    return Latency(len(waits) / seconds, *(float(np.percentile(late, q)) for q in (50, 99)), float(late.max()))


def show_pipeline(drains: list[Drain], latency: Latency, console: Console) -> None:
    table = RichTable(title="From the slot into DuckDB, against pg_recvlogical to nowhere")
    for heading in ("load", "changes", "walrelay s", "pg_recvlogical s", "changes/s", "ratio"):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for drain in drains:
        median = statistics.median(drain.ours)
        table.add_row(
            drain.kind,
            f"{drain.changes:,}",
            f"{median:.2f} ({min(drain.ours):.2f}–{max(drain.ours):.2f})",
            f"{statistics.median(drain.theirs):.2f}",
            f"{drain.changes / median:,.0f}",
            f"{drain.ratio:.2f} (goal ≥ {GOALS[drain.kind]})",
        )
    console.print(table)
    met = latency.p50 <= GOAL_P50 and latency.p99 <= GOAL_P99
    console.print(
        f"[{'green' if met else 'red'}]commit → visible in DuckDB at {latency.rate:.0f} transactions/s:"
        f" p50 {latency.p50 * 1000:.0f} ms, p99 {latency.p99 * 1000:.0f} ms, worst {latency.worst * 1000:.0f} ms"
        f" (goal: p50 ≤ {GOAL_P50 * 1000:.0f}, p99 ≤ {GOAL_P99 * 1000:.0f})[/]"
    )
