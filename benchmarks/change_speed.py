"""The change road's drain: a backlog captured to a durable log, against `pg_recvlogical` to nowhere, in one run."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.tables import make_bench_table
from walrelay.postgres.slot import flushed_lsn
from walrelay.testing.postgres import EmbeddedPostgres

GOALS = {1000: 1.0, 1: 0.8}
"""Rows in a transaction → the ratio of rates that is wanted."""
MAKE_BACKLOG = """
DO $$ BEGIN
    FOR batch IN 0..%(last)s LOOP
        INSERT INTO backlog SELECT * FROM bench WHERE id > batch * %(size)s AND id <= (batch + 1) * %(size)s;
        COMMIT;
    END LOOP;
END $$
"""


@dataclass
class Drain:
    """One contender's rounds."""

    name: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def median_cpu(self) -> float:
        return statistics.median(self.cpu)


@dataclass
class Race:
    """A backlog of `rows` rows in transactions of `size`."""

    rows: int
    size: int
    theirs: Drain
    ours: Drain

    @property
    def ratio(self) -> float:
        return self.theirs.median / self.ours.median


def race_drains(rows: int, repeat: int, console: Console) -> list[Race]:
    """Every round has a slot of its own per contender, made before the backlog; they take turns."""
    races = []
    for size in (1000, 1):
        settings = {"max_replication_slots": "64", "max_wal_senders": "64", "max_wal_size": "16GB"}
        with EmbeddedPostgres(settings=settings) as server, tempfile.TemporaryDirectory() as directory:
            with console.status(f"making a backlog of {rows:,} rows in transactions of {size:,}"):
                end = _make_backlog(server, rows, size, repeat)
            race = Race(rows, size, Drain("pg_recvlogical"), Drain("walrelay capture"))
            for number in range(repeat + 1):  # the first round warms caches and is not counted
                with console.status(f"draining, round {number} of {repeat}"):
                    theirs = pg_recvlogical(server, f"theirs_{number}", end)
                    ours = _capture(server, f"ours_{number}", Path(directory) / str(number))
                if number:
                    for drain, (seconds, cpu) in ((race.theirs, theirs), (race.ours, ours)):
                        drain.seconds.append(seconds)
                        drain.cpu.append(cpu)
                shutil.rmtree(Path(directory) / str(number))
            races.append(race)
    return races


def _make_backlog(server: EmbeddedPostgres, rows: int, size: int, repeat: int) -> str:
    make_bench_table(server.url, rows)
    with psycopg.connect(server.url, autocommit=True, row_factory=psycopg.rows.namedtuple_row) as connection:
        connection.execute("CREATE TABLE backlog (LIKE bench INCLUDING ALL)")
        connection.execute("CREATE PUBLICATION backlog FOR TABLE backlog")
        for number in range(repeat + 1):
            for who in ("theirs", "ours"):
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (f"{who}_{number}",))
        connection.execute(MAKE_BACKLOG % {"last": rows // size - 1, "size": size})
        connection.execute("CHECKPOINT")
        return str(flushed_lsn(connection))


def pg_recvlogical(server: EmbeddedPostgres, slot: str, end: str) -> tuple[float, float]:
    """Seconds and CPU seconds until it has received everything."""
    command = [
        str(server.bin_dir / "pg_recvlogical"), "--dbname", server.url, "--slot", slot, "--start", "--no-loop",
        "--file", os.devnull, "--endpos", end, "--option", "proto_version=4", "--option", "publication_names=backlog",
        "--option", "binary=true", "--option", "messages=true",
    ]  # fmt: skip
    before = os.times()
    begun = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu


def _capture(server: EmbeddedPostgres, slot: str, log: Path) -> tuple[float, float]:
    found = capture_once({"url": server.url, "publication": "backlog", "slot": slot, "log": str(log)})
    return found["seconds"], found["cpu"]


def capture_once(task: dict[str, Any]) -> dict[str, Any]:
    """Capture in a process of its own until caught up; its figures."""
    command = [sys.executable, "-m", "benchmarks.capture_run", json.dumps(task)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def show_drains(races: list[Race], console: Console) -> None:
    table = RichTable(title=f"Draining a backlog of {races[0].rows:,} inserted rows")
    for heading in (
        "rows a transaction",
        "contender",
        "seconds",
        "min–max",
        "rows/s",
        "CPU s per million rows",
        "ratio",
    ):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    for race in races:
        for drain in (race.theirs, race.ours):
            ratio = f"{race.ratio:.2f} (goal ≥ {GOALS[race.size]})" if drain is race.ours else ""
            table.add_row(
                f"{race.size:,}",
                drain.name,
                f"{drain.median:.2f}",
                f"{min(drain.seconds):.2f}–{max(drain.seconds):.2f}",
                f"{race.rows / drain.median:,.0f}",
                f"{drain.median_cpu * 1e6 / race.rows:.2f}",
                ratio,
            )
    console.print(table)


def drains_as_json(races: list[Race]) -> list[dict[str, Any]]:
    return [
        {
            "rows": race.rows,
            "transaction_rows": race.size,
            "ratio": race.ratio,
            **{drain.name: {"seconds": drain.seconds, "cpu": drain.cpu} for drain in (race.theirs, race.ours)},
        }
        for race in races
    ]
