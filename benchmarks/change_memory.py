"""Memory of capture under the loads that hurt: one huge transaction, many open ones, one huge value."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.change_speed import capture_once
from benchmarks.tables import make_bench_table
from walrelay.testing.postgres import EmbeddedPostgres

GOAL_BYTES = 600_000_000
OPEN = 200


@dataclass(frozen=True)
class Weight:
    name: str
    peak_bytes: int
    rows: int
    seconds: float
    spilled_bytes: int


def weigh_capture(rows: int, console: Console) -> list[Weight]:
    loads: dict[str, Callable[[str], None]] = {
        f"one transaction of {rows:,} rows": lambda url: _huge_transaction(url, rows),
        f"{OPEN} interleaved open transactions": lambda url: _interleaved(url, rows // 2),
        "one value of 100 MB": _huge_value,
    }
    found = []
    for name, load in loads.items():
        settings = {"max_connections": str(OPEN + 50), "max_wal_size": "16GB"}
        with (
            console.status(name),
            EmbeddedPostgres(settings=settings) as server,
            tempfile.TemporaryDirectory() as directory,
        ):
            make_bench_table(server.url, 1000)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("CREATE TABLE load (LIKE bench INCLUDING ALL)")
                connection.execute("ALTER TABLE load ADD body bytea")
                connection.execute("CREATE PUBLICATION load FOR TABLE load")
                connection.execute("SELECT pg_create_logical_replication_slot('load', 'pgoutput')")
            load(server.url)
            task = {"url": server.url, "publication": "load", "slot": "load", "log": str(Path(directory) / "log")}
            one: dict[str, Any] = capture_once(task)
        found.append(Weight(name, one["peak_bytes"], one["rows"], one["seconds"], one["spilled_bytes"]))
    return found


_INSERT = (
    "INSERT INTO load SELECT (%s + g), customer, status, amount, price, created, day, flag, note, uid, tags"
    " FROM generate_series(1, %s) g JOIN bench ON bench.id = 1 + g %% 1000"
)


def _huge_transaction(url: str, rows: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(_INSERT, (0, rows))


def _interleaved(url: str, rows: int) -> None:
    """All are open at once, and each has written a part when the next writes its own; every other is rolled back."""
    share = max(1, rows // OPEN // 4)
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(url)) for _ in range(OPEN)]
        for turn in range(4):
            for number, connection in enumerate(connections):
                connection.execute(_INSERT, ((number * 4 + turn) * share, share))
        for number, connection in enumerate(connections):
            connection.commit() if number % 2 else connection.rollback()


def _huge_value(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(_INSERT, (0, 1))
        connection.execute("UPDATE load SET body = decode(repeat('0123456789abcdef', 12500000), 'hex')")


def show_weights(weights: list[Weight], console: Console) -> None:
    table = RichTable(title="Memory of capture")
    for heading in ("load", "peak MB", "changes", "seconds", "spilled MB"):
        table.add_column(heading, justify="left" if heading == "load" else "right")
    for one in weights:
        colour = "green" if one.peak_bytes < GOAL_BYTES else "red"
        table.add_row(
            one.name,
            f"[{colour}]{one.peak_bytes / 1e6:,.0f}[/]",
            f"{one.rows:,}",
            f"{one.seconds:.1f}",
            f"{one.spilled_bytes / 1e6:,.0f}",
        )
    console.print(table)
