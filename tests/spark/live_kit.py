"""What the tests of running pipelines share: a pipeline that can be made again and again, and waits on its status."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from pyspark.sql import SparkSession

from walrelay.config.settings import capture_settings, copy_settings
from walrelay.destinations.base import Destination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.pipeline import Pipeline
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import flushed_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.stores.sqlite import SqliteStore
from walrelay.workers import live as live_module
from walrelay.workers.report import Silent, TableReport
from walrelay.workers.status import PipelineStatus, TableStatus

PATIENCE = 180.0


class Heard(Silent):
    """A listener that remembers."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.retried: list[str] = []
        self.failed: list[TableReport] = []
        self.notices: list[str] = []

    def table_started(self, table: TableName, attempt: int) -> None:
        self.started.append(str(table))

    def table_retrying(self, table: TableName, error: Exception, seconds: float) -> None:
        self.retried.append(str(table))

    def table_finished(self, report: TableReport) -> None:
        if report.error is not None:
            self.failed.append(report)

    def notice(self, message: str) -> None:
        self.notices.append(message)


class Live:
    """A source, a log, a store and a DuckDB file, on which pipelines are started one after the other."""

    def __init__(self, url: str, directory: Path, spark: SparkSession | None) -> None:
        self.url = url
        self.source = PostgresSource(url, publication="p")
        self.file = directory / "out.duckdb"
        self.log = directory / "log"
        self.slot = f"live_{uuid4().hex[:10]}"
        self.heard = Heard()
        self._state = directory / "state.sqlite"
        self._spark = spark
        self._made: list[Pipeline] = []

    def sql(self, *statements: str) -> None:
        """Each in a transaction of its own, flushed at its end."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def store(self) -> SqliteStore:
        return SqliteStore(self._state, "live")

    def pipeline(self, destination: Destination | None = None, **more: Any) -> Pipeline:
        """Another one, on the same things."""
        self.heard = Heard()
        given: dict[str, Any] = {
            "store": more.get("store") or self.store(),
            "mode": "both",
            "spark": self._spark,
            "listener": self.heard,
            "id": "live",
            "log": self.log,
            "slot": self.slot,
            "settings": copy_settings(retry_delay=0.05, retries=8),
            "capture": capture_settings(segment_age=0.02, retry_delay=0.05),
            **more,
        }
        made = Pipeline(self.source, destination or DuckDBDestination(self.file), **given)
        self._made.append(made)
        return made

    @contextmanager
    def running(self, destination: Destination | None = None, **more: Any) -> Iterator[Pipeline]:
        """Started, and stopped at the end; what ended it before is raised."""
        with self.pipeline(destination, **more) as started:
            yield started

    def capture_pid(self) -> int:
        """The process of capture beside the pipeline that was made last."""
        live = self._made[-1]._live
        assert live is not None and live._parts.process.pid is not None, "no capture runs"
        return live._parts.process.pid

    def close(self) -> None:
        """Stop what a failed test has left running."""
        for one in self._made:
            one.shutdown()

    def wait(self, pipeline: Pipeline, holds: Callable[[PipelineStatus], bool], what: str) -> PipelineStatus:
        """Until its status is so; raises what ended the pipeline."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status = pipeline.status()
            if status is not None and holds(status):
                return status
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s; {status}; {self.heard.notices}"
            assert pipeline._thread is not None and (pipeline._thread.is_alive() or pipeline.wait(0) is None), (
                "it ended"
            )
            time.sleep(0.02)

    def wait_ready(self, pipeline: Pipeline, *tables: str) -> PipelineStatus:
        """Until these tables, or all that there are, are ready."""

        def ready(status: PipelineStatus) -> bool:
            phases = {str(one.name): one.phase for one in status.tables}
            wanted = tables or tuple(phases)
            return bool(wanted) and all(phases.get(name) == "ready" for name in wanted)

        return self.wait(pipeline, ready, f"{', '.join(tables) or 'all tables'} ready")

    def wait_current(self, pipeline: Pipeline, *tables: str) -> PipelineStatus:
        """Until all that was committed before now is in these tables, or in all that there are."""
        self.wait_ready(pipeline, *tables)
        with connect(self.source) as connection:
            altered = flushed_lsn(connection)
        log = self.wait_logged(pipeline)

        def current(status: PipelineStatus) -> bool:
            end = log.end()
            return self._has_looked(pipeline, altered) and all(
                one.position is not None and one.position >= end and one.phase == "ready"
                for one in status.tables
                if not tables or str(one.name) in tables
            )

        return self.wait(pipeline, current, "everything in the log is applied")

    @staticmethod
    def _has_looked(pipeline: Pipeline, lsn: Lsn) -> bool:
        """Whether the pipeline knows of all that was altered before, and has done what is to be done about it."""
        live = pipeline._live
        return live is None or live_module.DISCOVER_SECONDS > PATIENCE or live.has_settled(lsn)

    def wait_logged(self, pipeline: Pipeline) -> LogReader:
        """Until all that was committed before now is in the log."""
        with connect(self.source) as connection:
            target = flushed_lsn(connection)
        log = LogReader(self.log)
        self.wait(pipeline, lambda _: log.head() >= target, f"the log has everything up to {target}")
        return log


def table(status: PipelineStatus, name: str) -> TableStatus:
    return next(one for one in status.tables if str(one.name) == name)


def phases(pipeline: Pipeline) -> dict[str, str]:
    status = pipeline.status()
    return {} if status is None else {str(one.name): one.phase for one in status.tables}


def confirmed(live: Live) -> Lsn:
    with psycopg.connect(live.url) as connection:
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (live.slot,)
        ).fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def ended(live: Live) -> Lsn:
    """Where the source's WAL ends."""
    with psycopg.connect(live.url) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])
