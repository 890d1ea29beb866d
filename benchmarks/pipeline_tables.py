"""What many tables cost: from the start to all of them ready, and then the idle pipeline's share of a core."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil
import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.pipeline_run import running
from benchmarks.sampling import roles_below
from walrelay.spark.session import spark_session, stop_session
from walrelay.testing.postgres import EmbeddedPostgres

ROWS = 100
GOAL_SECONDS, GOAL_SHARE = 60.0, 0.10
SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Crowd:
    """So many tables in one publication."""

    tables: int
    ready: float
    """Seconds from the start, Spark's included, to all tables ready."""
    idle: dict[str, float]
    """Share of a core that each role takes when nothing happens."""

    @property
    def share(self) -> float:
        return sum(self.idle.values())


def measure_crowds(counts: list[int], seconds: float, console: Console) -> list[Crowd]:
    found = []
    for tables in counts:
        with EmbeddedPostgres() as server:
            with psycopg.connect(server.url, autocommit=True) as connection:
                for number in range(tables):
                    connection.execute(
                        f"CREATE TABLE t_{number} (id bigint PRIMARY KEY, note text, at timestamptz DEFAULT now())"
                    )
                    connection.execute(
                        f"INSERT INTO t_{number} SELECT g, 'row ' || g FROM generate_series(1, {ROWS}) g"
                    )
                connection.execute("CREATE PUBLICATION crowd FOR ALL TABLES")
            stop_session()
            begun = time.monotonic()
            with console.status(f"{tables} tables"):
                spark_session()
                with running(server.url, "crowd"):
                    ready = time.monotonic() - begun
                    time.sleep(SETTLE_SECONDS)
                    idle = _idle(server.pid, seconds)
            stop_session()
        found.append(Crowd(tables, ready, idle))
    return found


def _idle(server: int, seconds: float) -> dict[str, float]:
    before = _cpu(server)
    time.sleep(seconds)
    sums: dict[str, float] = {}
    for process, (role, used) in _cpu(server).items():
        _, already = before.get(process, (role, 0.0))
        sums[role] = sums.get(role, 0.0) + (used - already) / seconds
    return sums


def _cpu(server: int) -> dict[int, tuple[str, float]]:
    """By process: its role and its CPU seconds so far; the server's own are not ours."""
    found: dict[int, tuple[str, float]] = {}
    for process, role in roles_below(os.getpid(), server):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = (role.value, times.user + times.system)
    return found


def show_crowds(crowds: list[Crowd], console: Console) -> None:
    table = RichTable(title=f"Tables of {ROWS} rows in one publication")
    for heading in ("tables", "all ready after", "idle: share of a core", "of which"):
        table.add_column(heading, justify="right")
    for crowd in crowds:
        table.add_row(
            f"{crowd.tables:,}",
            f"{crowd.ready:.1f} s (goal < {GOAL_SECONDS:.0f} for 500)",
            f"{crowd.share:.1%} (goal < {GOAL_SHARE:.0%})",
            ", ".join(f"{role} {share:.1%}" for role, share in crowd.idle.items()),
        )
    console.print(table)
