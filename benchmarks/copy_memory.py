"""Memory of a copy: a task's peak must stay the same, and small, however large the table is."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.machine import describe_machine
from benchmarks.sampling import MemoryPeak, MemorySampler, Role
from benchmarks.tables import WIDE_ROW_BYTES, Table, WideTable
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import spark_session
from walrelay.testing.postgres import EmbeddedPostgres

SHARES = (0.1, 0.5, 1.0)
"""Of the full size; the table grows from one to the next."""
GOAL_BYTES = 600_000_000
"""Of one task, which is one Python worker."""
ROOM = 3
"""Times the table's size: the table, the landed files, the DuckDB file."""
ROLES = frozenset({Role.DRIVER, Role.JVM, Role.WORKER})


@dataclass(frozen=True, slots=True)
class Weight:
    """One copy and its peaks."""

    table: Table
    seconds: float
    peak: MemoryPeak


def weigh_copies(gigabytes: float, duckdb_memory: str, console: Console) -> tuple[Weight, ...]:
    """Copy a tenth, a half and all of a table of 10 kB rows into DuckDB, watching the memory."""
    size = fitting_size(int(gigabytes * 1e9), console)
    # Little WAL is kept: the disk is for the table.
    settings = {"max_wal_size": "512MB", "wal_keep_size": "0"}
    with (
        EmbeddedPostgres(settings=settings) as server,
        tempfile.TemporaryDirectory(prefix="walrelay-bench-") as directory,
    ):
        with console.status("starting Spark"):
            spark = spark_session()
        wide = WideTable(server.url)
        weights = []
        try:
            for share in SHARES:
                with console.status(f"making a table of {share * size / 1e9:.2f} GB in rows of 10 kB"):
                    table = wide.grow_to(int(share * size))
                with console.status(f"copying {table.rows:,} rows"):
                    destination = DuckDBDestination(Path(directory) / "wide.duckdb", memory_limit=duckdb_memory)
                    weights.append(_weigh(table, destination, server.pid))
        finally:
            wide.drop()
            spark.stop()
    return tuple(weights)


def fitting_size(wanted: int, console: Console) -> int:
    """As much of `wanted` as the temporary directory has room for."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if wanted * ROOM <= free:
        return wanted
    fitting = max(free // ROOM, WIDE_ROW_BYTES)
    console.print(
        f"[yellow]{tempfile.gettempdir()} has {free / 1e9:.1f} GB free, and {wanted / 1e9:.1f} GB of table need "
        f"{wanted * ROOM / 1e9:.1f} GB: measuring {fitting / 1e9:.1f} GB instead[/] (TMPDIR chooses another disk)"
    )
    return fitting


def _weigh(table: Table, destination: DuckDBDestination, server_pid: int) -> Weight:
    source = PostgresSource(table.url, publication=table.publication)
    begun = time.perf_counter()
    try:
        with MemorySampler(ROLES, server_pid) as sampler:
            summary = Pipeline(source, destination, mode="copy").run()
    finally:
        destination.path.unlink(missing_ok=True)
    assert summary.rows == table.rows, f"copied {summary.rows} of {table.rows} rows"
    return Weight(table, time.perf_counter() - begun, sampler.peak)


def show_weights(weights: tuple[Weight, ...], console: Console) -> None:
    """Print the peaks and whether the goal was met."""
    table = RichTable(title="Peak memory of a copy into DuckDB, rows of 10 kB")
    for heading in (
        "table GB",
        "rows",
        "seconds",
        "MB/s",
        "largest worker MB",
        "all workers MB",
        "driver MB",
        "JVM MB",
    ):
        table.add_column(heading, justify="right")
    for weight in weights:
        peak = weight.peak
        table.add_row(
            f"{weight.table.disk_bytes / 1e9:.2f}",
            f"{weight.table.rows:,}",
            f"{weight.seconds:.1f}",
            f"{weight.table.rows * WIDE_ROW_BYTES / 1e6 / weight.seconds:,.0f}",
            f"{peak.largest_worker / 1e6:,.0f}",
            *(f"{peak.by_role[role] / 1e6:,.0f}" for role in (Role.WORKER, Role.DRIVER, Role.JVM)),
        )
    console.print(table)
    largest = max(weight.peak.largest_worker for weight in weights)
    colour = "green" if largest < GOAL_BYTES else "red"
    console.print(f"[{colour}]largest task {largest / 1e6:,.0f} MB (goal < {GOAL_BYTES / 1e6:,.0f} MB)[/]")
    console.print(
        "[dim]A worker's figure is all it has resident, shared pages too. DuckDB works in the driver and takes what it "
        "is allowed (--duckdb-memory).[/]"
    )


def weights_as_json(weights: tuple[Weight, ...]) -> dict[str, Any]:
    largest = max(weight.peak.largest_worker for weight in weights)
    return {
        "machine": describe_machine(),
        "copies": [
            {
                "rows": weight.table.rows,
                "disk_bytes": weight.table.disk_bytes,
                "seconds": weight.seconds,
                "peak_bytes": {role.value: weight.peak.by_role[role] for role in Role if role in ROLES},
                "worker_peak_bytes": sorted(weight.peak.workers.values(), reverse=True),
            }
            for weight in weights
        ],
        "goal": {"largest_worker_bytes": largest, "target_bytes": GOAL_BYTES, "met": largest < GOAL_BYTES},
    }
