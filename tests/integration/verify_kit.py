"""A source, its log and a DuckDB file that is kept current without Spark: capture and the destination are real, and the
pipeline's part, to hand one to the other, is a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import duckdb
import psycopg

from walrelay.capture.capture import Capture
from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.control.stores import STATE_FILE, log_of
from walrelay.destinations.base import DestinationContext, SimpleDestination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.phases import Ready, TableReplicationPhase
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.identity import source_id
from walrelay.postgres.slot import flushed_lsn, inserted_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.stores.names import unique_name
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.capturing import capturing
from walrelay.verify.report import TableResult, VerifyReport
from walrelay.verify.run import VerifyParts, verify

PATIENCE = 120.0


class Followed:
    """Tables that are published as `p`, empty when they are followed first."""

    def __init__(self, url: str, directory: Path, destination: SimpleDestination | None = None) -> None:
        self.url = url
        self.source = PostgresSource(url, publication="p")
        self.state = directory / "state"
        self.state.mkdir()
        self.log = log_of(self.state)
        self.file = directory / "copy.duckdb"
        self.slot = f"verify_{uuid4().hex[:10]}"
        self.store = SqliteStore(self.state / STATE_FILE, "p")
        self.destination: SimpleDestination = destination or DuckDBDestination(self.file)
        self.applied = Lsn(0)
        self.paused = threading.Event()
        """Set to let the destination fall behind."""

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def in_copy(self, *statements: str) -> None:
        """Behind everybody's back."""
        with duckdb.connect(str(self.file)) as connection:
            for statement in statements:
                connection.execute(statement)

    def follow(self) -> None:
        """Bring everything that was committed before now, and end."""
        Capture(self.source, slot=self.slot, log=self.log, settings=capture_settings()).run(until="caught-up")
        self.mark()
        with self._started():
            if not self.applied:
                self._copy()
            self._apply(LogReader(self.log))

    def _copy(self) -> None:
        """The tables as they are, which is empty."""
        with connect(self.source) as connection:
            for table in published_tables(connection, "p"):
                schema = read_schema(connection, table)
                target = self.destination.dialect.target
                self.destination.write_table_rows(schema, TableRows(schema, (), target, 0, inserted_lsn(connection)))

    def mark(self, phase: TableReplicationPhase | None = None) -> None:
        """Tables of the publication are ready, or what is said."""
        with connect(self.source) as connection:
            tables = published_tables(connection, "p")
        self.store.update_table_replication_states({table.id: phase or Ready() for table in tables})

    @contextmanager
    def following(self) -> Iterator[None]:
        """Bring everything, as it comes."""
        settings = capture_settings(segment_age=0.02)
        failures: list[BaseException] = []
        stopping = threading.Event()

        def work() -> None:
            log = LogReader(self.log)
            try:
                while not stopping.wait(0.03):
                    if not self.paused.is_set():
                        self._apply(log)
            except BaseException as error:
                failures.append(error)

        with (
            self.store.acquire_pipeline_lock(),  # as a pipeline that runs does
            capturing(Capture(self.source, slot=self.slot, log=self.log, settings=settings)),
            self._started(),
        ):
            thread = threading.Thread(target=work, name="apply under test")
            thread.start()
            try:
                yield
            finally:
                stopping.set()
                thread.join()
        if failures:
            raise failures[0]

    def _apply(self, log: LogReader) -> None:
        end = log.end()
        if end > self.applied:
            self.destination.write_events(EventBatch(log, max(self.applied, log.start()), end))
            self.applied = end

    def wait_current(self) -> None:
        """Until all that was committed before now is applied."""
        with connect(self.source) as connection:
            target = flushed_lsn(connection)
        log, deadline = LogReader(self.log), time.monotonic() + PATIENCE
        while log.head() < target or self.applied < log.end():
            assert time.monotonic() < deadline, f"{self.applied} applied, the log is at {log.head()}, {target} wanted"
            time.sleep(0.01)

    @contextmanager
    def _started(self) -> Iterator[None]:
        with connect(self.source) as connection:
            identity = source_id(connection)
        name = unique_name(self.store, "p")
        self.destination.startup(
            DestinationContext("p", copy_settings(), store=self.store, source_id=identity, pipeline_name=name)
        )
        try:
            yield
        finally:
            self.destination.shutdown()

    def verify(self, *tables: str, repair: bool = False, patience: float = 30.0) -> VerifyReport:
        parts = VerifyParts("p", self.source, self.destination, self.store, self.log, copy_settings(), patience)
        return verify(parts, tables, repair=repair)

    def one(self, table: str, *, repair: bool = False, patience: float = 30.0) -> TableResult:
        (found,) = self.verify(table, repair=repair, patience=patience).tables
        return found

    def close(self) -> None:
        self.store.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                (self.slot,),
            )
