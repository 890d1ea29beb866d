"""A table's copy: loaded beside the old one by several connections, then put in its place in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq

from walrelay.changes.rows import LandedFile, TableRows
from walrelay.changes.shapes import HeldColumn
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.postgres.client import Connection, Sessions, rows, run
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.keys import add_key
from walrelay.destinations.postgres.places import make_schema, place
from walrelay.destinations.postgres.shape import create_table
from walrelay.destinations.postgres.text import column_text, csv_bytes
from walrelay.errors import StoppedError
from walrelay.failpoints import hit
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

BUILDING = "_walrelay_copy_"
"""How the names of unfinished copies begin."""
READ_ROWS = 32_768
MARK = "unfinished copy of pipeline "
_UNFINISHED = (
    "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
    " ON n.oid = c.relnamespace WHERE pg_catalog.starts_with(c.relname, %s) AND c.relkind = 'r'"
    " AND pg_catalog.obj_description(c.oid, 'pg_class') = %s"
)


@dataclass(frozen=True)
class Building:
    """The table beside, while it is loaded."""

    schema: TableSchema
    columns: tuple[HeldColumn, ...]
    pipeline_id: str
    attempt: str = ""
    """Of a table that tasks fill by themselves: one of an attempt that was given up is never taken for the next."""

    @property
    def name(self) -> TableName:
        attempt = f"_{self.attempt}" if self.attempt else ""
        return TableName(self.schema.name.schema, f"{BUILDING}{self.schema.id}{attempt}")

    @property
    def parts(self) -> TableName:
        """Which ranges tasks have brought."""
        return TableName(self.name.schema, f"{self.name.name}_parts")

    def begin(self, connection: Connection) -> None:
        """An empty one, within a transaction."""
        make_schema(connection, self.schema.name.schema)
        self.drop(connection)
        create_table(connection, place(self.name), self.columns)
        self._mark(connection, self.name)
        if self.attempt:
            run(connection, f"CREATE TABLE {place(self.parts)} (part text PRIMARY KEY, rows int8 NOT NULL)")
            self._mark(connection, self.parts)

    def _mark(self, connection: Connection, table: TableName) -> None:
        run(connection, f"COMMENT ON TABLE {place(table)} IS {_text(MARK + self.pipeline_id)}")

    def brought(self, connection: Connection) -> int:
        """The rows of all ranges that tasks have brought, of which nothing more is kept."""
        ((count,),) = rows(connection, f"SELECT coalesce(sum(rows), 0)::int8 FROM {place(self.parts)}")
        run(connection, f"DROP TABLE {place(self.parts)}")
        return int(count)

    def drop(self, connection: Connection) -> None:
        """This one, and what attempts before it have left."""
        run(connection, f"DROP TABLE IF EXISTS {place(self.name)}")
        question = f"{_UNFINISHED} AND n.nspname = %s AND (c.relname = %s OR pg_catalog.starts_with(c.relname, %s))"
        name = f"{BUILDING}{self.schema.id}"
        values = (BUILDING, MARK + self.pipeline_id, self.schema.name.schema, name, f"{name}_")
        for schema, table in rows(connection, question, values):
            run(connection, f"DROP TABLE {place(TableName(schema, table))}")

    def finish(self, connection: Connection) -> None:
        """Its key, once all rows are there: an index is made faster than it is filled."""
        add_key(connection, place(self.name), self.schema)

    def put_in_place(self, connection: Connection) -> None:
        """Within the transaction that records it. Readers who wait for the old one then find this one."""
        run(connection, f"DROP TABLE IF EXISTS {place(self.schema.name)}")
        run(connection, f"ALTER TABLE {place(self.name)} RENAME TO {quoted(self.schema.name.name)}")
        self._rename_key(connection)
        key = ", ".join(self.schema.primary_key)
        words = f"primary key: {key}" if key else "no primary key"
        run(connection, f"COMMENT ON TABLE {place(self.schema.name)} IS {_text(words)}")

    def _rename_key(self, connection: Connection) -> None:
        """As Postgres would have called it."""
        wanted = f"{self.schema.name.name[:58]}_pkey"
        found = rows(
            connection,
            "SELECT c.conname::text, pg_catalog.to_regclass(%s) IS NULL FROM pg_catalog.pg_constraint c"
            " WHERE c.conrelid = pg_catalog.to_regclass(%s) AND c.contype = 'p'",
            (place(TableName(self.schema.name.schema, wanted)), place(self.schema.name)),
        )
        for name, is_free in found:
            if is_free and len(wanted.encode()) < 64:
                table = place(self.schema.name)
                run(connection, f"ALTER TABLE {table} RENAME CONSTRAINT {quoted(name)} TO {quoted(wanted)}")


class Loader:
    """Puts landed files into a table that nobody else knows."""

    def __init__(self, sessions: Sessions, context: DestinationContext, connections: int) -> None:
        self._sessions = sessions
        self._context = context
        self._connections = connections
        self._failed = threading.Event()

    def load_small(self, connection: Connection, building: Building, landed: TableRows) -> int:
        """Within the open transaction."""
        return sum(self._copy(connection, building, file) for file in landed.files)

    def load(self, building: Building, landed: TableRows) -> int:
        """The number of rows. Several files at a time, each by a connection of its own."""
        if not landed.files:
            return 0
        shares = _shares(landed.files, self._connections)
        with ThreadPoolExecutor(len(shares), thread_name_prefix="walrelay load") as threads:
            return sum(threads.map(lambda share: self._load(building, landed, share), shares))

    def _load(self, building: Building, landed: TableRows, files: Sequence[LandedFile]) -> int:
        try:
            with self._sessions.another(f"copying {building.schema.name}") as connection:
                count = 0
                for file in files:
                    count += self._copy(connection, building, file)
                    hit("destination.piece")
                return count
        except BaseException:
            self._failed.set()
            raise

    def _copy(self, connection: Connection, building: Building, file: LandedFile) -> int:
        columns = building.schema.columns
        if not columns:
            series = f"pg_catalog.generate_series(1, {file.rows})"
            return run(connection, f"INSERT INTO {place(building.name)} SELECT FROM {series}").rowcount
        statement = f"COPY {place(building.name)} FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy, _opened(file) as parquet:
                for batch in parquet.iter_batches(batch_size=READ_ROWS):
                    self._go_on(building)
                    arrays = [column_text(one, column) for one, column in zip(batch.columns, columns, strict=True)]
                    copy.write(csv_bytes(arrays))
            return cursor.rowcount

    def _go_on(self, building: Building) -> None:
        if self._context.stopping.is_set():
            raise StoppedError(f"stopped while {building.schema.name} was loaded")
        if self._failed.is_set():
            raise StoppedError(f"another connection has failed to load {building.schema.name}")


@contextmanager
def _opened(file: LandedFile) -> Iterator[pq.ParquetFile]:
    with pq.ParquetFile(file.path) as parquet:
        yield parquet


def _shares(files: Sequence[LandedFile], most: int) -> list[list[LandedFile]]:
    """The files for so many connections, each about as much."""
    shares: list[list[LandedFile]] = [[] for _ in range(min(most, len(files)))]
    for file in sorted(files, key=lambda one: -one.bytes):
        min(shares, key=lambda share: sum(one.bytes for one in share)).append(file)
    return shares


def drop_unfinished(connection: Connection, pipeline_id: str) -> None:
    """Remove copies that a run of this pipeline has begun and was killed in."""
    for schema, name in rows(connection, _UNFINISHED, (BUILDING, MARK + pipeline_id)):
        run(connection, f"DROP TABLE {place(TableName(schema, name))}")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
