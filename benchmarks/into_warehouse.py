"""Our share of a copy and of a backlog into BigQuery or Snowflake: CPU and memory of the driver and its Spark.

Emulators stand in for the services, so how long it takes says nothing and is no goal. What is counted runs on the
user's machine whatever the service does: this process, the JVM and the Python workers; not the emulator, Postgres and
capture.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.lake_merge import CHANGES
from benchmarks.machine import describe_machine
from benchmarks.pipeline_run import has_applied, running, wait_until
from benchmarks.sampling import MemorySampler, Role, roles_below
from benchmarks.tables import make_bench_table
from tests.warehouse.bigquery_kit import BigQueryPlace, bigquery_server
from tests.warehouse.snowflake_kit import SnowflakePlace, snowflake_server
from walrelay.config.settings import copy_settings
from walrelay.model.lsn import Lsn
from walrelay.testing.postgres import EmbeddedPostgres

OURS = frozenset({Role.DRIVER, Role.JVM, Role.WORKER})
SERVICES = ("bigquery", "snowflake")


@dataclass(frozen=True)
class Share:
    """Of one piece of work."""

    service: str
    work: str
    rows: int
    cpu_seconds: dict[str, float]
    peak_bytes: dict[str, int]


def measure_shares(services: list[str], rows: int, changes: int, console: Console) -> list[Share]:
    found: list[Share] = []
    for service in services:
        with EmbeddedPostgres() as server, _place(service) as place:
            url = server.create_database("bench")
            make_bench_table(url, rows)
            with console.status(f"{service}: copying and draining into the emulator"):
                found += _shares_of(service, place, url, server.pid, rows, changes)
    return found


def _shares_of(
    service: str, place: BigQueryPlace | SnowflakePlace, url: str, server_pid: int, rows: int, changes: int
) -> list[Share]:
    before, found, settings = _cpu(server_pid), list[Share](), copy_settings(every=timedelta(seconds=1))
    with ExitStack() as copying:
        watching = copying.enter_context(MemorySampler(OURS, server_pid))
        with running(url, "bench", into=lambda _: place.destination(), settings=settings) as (pipeline, _):
            copying.close()
            found.append(_share(service, "copy", rows, before, _cpu(server_pid), watching))
            before = _cpu(server_pid)
            with MemorySampler(OURS, server_pid) as watching:
                end = _changed(url, rows, changes)
                wait_until(pipeline, lambda: has_applied(pipeline, end), every=0.2)
            found.append(_share(service, "changes", changes, before, _cpu(server_pid), watching))
    with psycopg.connect(url) as connection:
        wanted = connection.execute("SELECT count(*) FROM bench").fetchone()
    assert wanted == (len(place.rows("bench")),), "what was measured has arrived"
    return found


def _changed(url: str, rows: int, changes: int) -> Lsn:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(CHANGES.format(batches=changes // 1000, rows=rows, first=rows * 10).encode())
        found = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert found is not None
    return Lsn.parse(found[0])


@contextmanager
def _place(service: str) -> Iterator[BigQueryPlace | SnowflakePlace]:
    with tempfile.TemporaryDirectory(prefix="walrelay-bench-") as directory:
        if service == "bigquery":
            with bigquery_server(Path(directory)) as endpoint:
                yield BigQueryPlace(endpoint)
        else:
            with snowflake_server(Path(directory)) as port:
                yield SnowflakePlace(port)


def _cpu(server_pid: int) -> dict[str, float]:
    """Seconds so far, by role; also of processes that have ended."""
    spent = dict.fromkeys((one.value for one in OURS), 0.0)
    for process, role in roles_below(psutil.Process().pid, server_pid):
        if role in OURS:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            spent[role.value] += times.user + times.system
            if role is Role.WORKER:
                spent[role.value] += times.children_user + times.children_system
    return spent


def _share(
    service: str, work: str, rows: int, before: dict[str, float], after: dict[str, float], sampler: MemorySampler
) -> Share:
    cpu = {role: round(after[role] - before[role], 2) for role in after}
    return Share(service, work, rows, cpu, {role.value: size for role, size in sampler.peak.by_role.items()})


def shares_as_json(shares: list[Share]) -> dict[str, Any]:
    return {"machine": describe_machine(), "shares": [asdict(one) for one in shares]}


def show_shares(shares: list[Share], console: Console) -> None:
    table = RichTable(title="Into warehouses: our share")
    for heading in ("service", "work", "rows", "CPU s a million", "of it driver", "peak MB", "of it driver"):
        table.add_column(heading, justify="left" if heading in ("service", "work") else "right")
    for one in shares:
        cpu, peak = one.cpu_seconds, one.peak_bytes
        table.add_row(
            one.service,
            one.work,
            f"{one.rows:,}",
            f"{sum(cpu.values()) * 1e6 / one.rows:.1f}",
            f"{cpu['driver'] * 1e6 / one.rows:.1f}",
            f"{sum(peak.values()) / 1e6:.0f}",
            f"{peak.get('driver', 0) / 1e6:.0f}",
        )
    console.print(table)
