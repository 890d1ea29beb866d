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
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.change_speed import pg_recvlogical
from benchmarks.machine import describe_machine
from benchmarks.pipeline_run import has_applied, running, status_of, wait_until
from benchmarks.tables import make_bench_table
from walrelay.pipeline import Pipeline
from walrelay.postgres.slot import flushed_lsn
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
    with EmbeddedPostgres(settings=settings) as server:
        make_bench_table(server.url, rows)
        with psycopg.connect(server.url, autocommit=True, row_factory=psycopg.rows.namedtuple_row) as connection:
            for name in names:
                connection.execute(f"CREATE TABLE {name} (LIKE bench INCLUDING ALL)")
            connection.execute("CREATE TABLE ticks (id bigserial PRIMARY KEY, at timestamptz DEFAULT now())")
            connection.execute(f"CREATE PUBLICATION backlog FOR TABLE {', '.join(names)}, ticks")
            with running(server.url, "backlog") as (pipeline, directory):
                _warm_up(connection, pipeline)
                for drain in drains:
                    for number in range(repeat + 1):
                        _one_round(server, connection, pipeline, drain, number, rows, console)
                latency = _latency(connection, server.url, directory / "out.duckdb", rate, seconds, console)
    return drains, latency


def _warm_up(connection: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    """Spark's first batch comes late."""
    connection.execute("INSERT INTO ticks DEFAULT VALUES")
    end = flushed_lsn(connection)
    wait_until(pipeline, lambda: has_applied(pipeline, end))


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
        capture = status_of(pipeline).capture
        assert capture is not None
        os.kill(capture.pid, signal.SIGSTOP)
        connection.execute(statement % {"last": last, "table": table})
        connection.execute("CHECKPOINT")
        end = flushed_lsn(connection)
    with console.status(f"{drain.kind}, round {number}: draining into DuckDB"):
        before = status_of(pipeline).changes
        begun = time.monotonic()
        os.kill(capture.pid, signal.SIGCONT)
        wait_until(pipeline, lambda: has_applied(pipeline, end))
        ours = time.monotonic() - begun
        drain.changes = status_of(pipeline).changes - before
    with console.status(f"{drain.kind}, round {number}: pg_recvlogical"):
        theirs, _ = pg_recvlogical(server, slot, str(end))
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    if number:
        drain.ours.append(ours)
        drain.theirs.append(theirs)


def _latency(
    connection: psycopg.Connection[Any], url: str, path: Path, rate: int, seconds: float, console: Console
) -> Latency:
    """From a commit to the row's being visible to a reader who opens the file."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as writer:
            writer.execute("SET synchronous_commit = on")  # else the server itself waits 200 ms before it sends
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
        seen = json.loads(subprocess.run(reader, check=True, stdout=subprocess.PIPE).stdout)
        waits: list[float] = [wait for _, wait in seen]
        stop.set()
        thread.join()
    late = np.array(waits[len(waits) // 10 :])
    return Latency(len(waits) / seconds, *(float(np.percentile(late, q)) for q in (50, 99)), float(late.max()))


def pipeline_as_json(drains: list[Drain], latency: Latency) -> dict[str, Any]:
    return {
        "machine": describe_machine(),
        "drains": [{**asdict(drain), "ratio": drain.ratio} for drain in drains],
        "latency": asdict(latency),
    }


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
