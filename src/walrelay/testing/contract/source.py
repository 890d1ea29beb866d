"""A real Postgres, its log, and what a pipeline would hand to a destination."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import psycopg

from walrelay.capture.capture import Capture
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.changes.rows import TableRows
from walrelay.config.settings import MiB
from walrelay.destinations.base import Destination, WriteResult
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.ranges import plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.snapshot import Snapshot, exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_task import CopyTask, land_range
from walrelay.testing.contract.stories import NAMES, TABLES
from walrelay.testing.sample import Row, plain_row, take_sample

__all__ = ["ContractSource"]


class ContractSource:
    """A database with some tables, its log, and what a pipeline would hand to a destination. `ddl` makes the tables and
    their publication `contract`; `names` are written as SQL writes them."""

    def __init__(self, url: str, directory: Path, ddl: str = TABLES, names: tuple[str, ...] = NAMES) -> None:
        self.source = PostgresSource(url, publication="contract")
        self._names = names
        self._log = directory / "log"
        self._directory = directory
        self._schemas: dict[str, TableSchema] = {}
        self._slot = f"contract_{uuid4().hex[:12]}"
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(cast(Any, ddl))
        self.capture()

    def do(self, *statements: str) -> None:
        """Each is a transaction, or several; they are in the log afterwards."""
        for statement in statements:
            self.connection.execute(cast(Any, statement))
        self.capture()

    def capture(self) -> LogReader:
        Capture(self.source, slot=self._slot, log=self._log).run(until="caught-up")
        return LogReader(self._log)

    def close(self) -> None:
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        self.connection.close()

    def schema(self, table: str) -> TableSchema:
        if table not in self._schemas:
            with exported_snapshot(self.source, application="walrelay contract") as snapshot:
                self._schemas[table] = _schema(snapshot, table)
        return self._schemas[table]

    def copy(self, destination: Destination, table: str, snapshot: Snapshot | None = None) -> WriteResult:
        """Copy a table, as of now or under a snapshot."""
        if snapshot is None:
            with exported_snapshot(self.source, application="walrelay contract") as now:
                return self.copy(destination, table, now)
        schema = _schema(snapshot, table)
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        task = CopyTask(
            source=self.source,
            schema=schema,
            snapshot=snapshot.name,
            target=destination.dialect.target,
            special_values="null",
            chunk_bytes=MiB,
            file_bytes=64 * MiB,
            application="walrelay contract",
            directory=str(directory),
            keeps_files=destination.capabilities.keeps_files,
        )
        landed = [
            land_range(task, part) for part in plan_ranges(schema, range_bytes=64 * MiB, max_ranges=16, parallelism=1)
        ]
        files = tuple(file for result in landed for file in result.files)
        rows = TableRows(schema, files, task.target, sum(result.rows for result in landed), snapshot.lsn)
        try:
            destination.drop_table_for_copy(schema)
            return destination.write_table_rows(schema, rows)
        finally:
            shutil.rmtree(directory)

    def batch(
        self,
        after: Lsn | None = None,
        to: Lsn | None = None,
        unseen_by: str | None = None,
        tables: Collection[str] | None = None,
    ) -> EventBatch:
        """All tables, or some, from one position to another."""
        log = LogReader(self._log)
        start = after if after is not None else log.start()
        ranges = tuple(TableRange(self.schema(table).id, start, unseen_by) for table in tables or self._names)
        return EventBatch(log, start, to if to is not None else log.end(), ranges, location=str(self._log))

    def commits(self) -> list[Lsn]:
        """Where each transaction ends."""
        return sorted({change.end_lsn for change in LogReader(self._log).changes()})

    def contents(self) -> dict[str, list[Row]]:
        """What the source holds, by table."""
        sample = take_sample(self.connection, "contract")
        return {
            name: sorted(plain_row(dict(zip(table.columns, row, strict=True))) for row in table.rows)
            for name, table in sample.tables.items()
        }


def _schema(snapshot: Snapshot, table: str) -> TableSchema:
    return read_schema(snapshot.connection, find_table(snapshot.connection, TableName.parse(table)), "bytes")
