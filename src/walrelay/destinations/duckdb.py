"""Tables in a DuckDB file, each replaced by its copy in one transaction.

DuckDB lets one process in at a time, so the file is open only while something is written.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.decode.base import DUCKDB, Target
from walrelay.decode.table import duckdb_column_type
from walrelay.destinations.base import DestinationContext, SimpleDestination, TableRows, WriteResult
from walrelay.destinations.duckdb_names import refuse_twins
from walrelay.destinations.duckdb_types import projection, quoted
from walrelay.errors import (
    DestinationBusyError,
    DestinationCorruptError,
    DestinationError,
    DestinationNotWritableError,
    DiskFullError,
    MissingExtraError,
)
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

METADATA = """
CREATE SCHEMA IF NOT EXISTS _walrelay;
CREATE TABLE IF NOT EXISTS _walrelay.tables (
    schema_name VARCHAR, table_name VARCHAR, source_oid BIGINT, primary_key VARCHAR[], column_types VARCHAR[],
    row_count BIGINT, snapshot_lsn VARCHAR, copied_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (schema_name, table_name)
)
"""


class DuckDBDestination(SimpleDestination):
    """A DuckDB file. Tables keep schema, name, column names and order; `_walrelay.tables` says what was copied when,
    and the primary key, which also stands in each table's comment."""

    name = "duckdb"
    target: Target = DUCKDB
    lands_files = True

    def __init__(self, path: str | Path, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        self.path = Path(path)
        # The order of rows in a table means nothing, and keeping it costs time and memory.
        self._settings: dict[str, str] = {"preserve_insertion_order": "false"}
        if memory_limit is not None:
            self._settings["memory_limit"] = memory_limit
        if threads is not None:
            self._settings["threads"] = str(threads)
        self._lock = threading.Lock()
        self._context: DestinationContext | None = None

    def startup(self, context: DestinationContext) -> None:
        _duckdb()
        self._context = context
        parent = self.path.parent
        if not parent.is_dir():
            raise DestinationNotWritableError(f"the directory {parent} does not exist", hint=f"mkdir -p {parent}")
        writable = os.access(self.path, os.W_OK) if self.path.exists() else os.access(parent, os.W_OK)
        if self.path.is_dir() or not writable:
            raise DestinationNotWritableError(f"cannot write to {self.path}")
        with self._open() as connection:
            connection.execute(METADATA)

    def shutdown(self) -> None:
        self._context = None

    def staging_root(self) -> Path | None:
        return self.path.parent / f".{self.path.name}.walrelay"

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Nothing: the copy replaces the table and its entry together, and until then the old one stays readable."""

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        table = f"{quoted(schema.name.schema)}.{quoted(schema.name.name)}"
        with self._open() as connection:
            connection.execute("BEGIN")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema.name.schema)}")
            connection.execute(METADATA)
            refuse_twins(connection, schema)
            count = self._replace(connection, table, schema, rows)
            key = ", ".join(schema.primary_key)
            comment = f"primary key: {key}" if key else "no primary key"
            connection.execute(f"COMMENT ON TABLE {table} IS '{comment.replace(chr(39), chr(39) * 2)}'")
            connection.execute(
                "INSERT OR REPLACE INTO _walrelay.tables VALUES (?, ?, ?, ?, ?, ?, ?, now())",
                [
                    schema.name.schema, schema.name.name, schema.id, list(schema.primary_key),
                    [str(column.type) for column in schema.columns], count,
                    None if rows.snapshot_lsn is None else str(rows.snapshot_lsn),
                ],
            )  # fmt: skip
            connection.execute("COMMIT")
        return WriteResult(durable=True, rows=count)

    @staticmethod
    def _replace(connection: DuckDBPyConnection, table: str, schema: TableSchema, rows: TableRows) -> int:
        columns = [f"{quoted(column.name)} {duckdb_column_type(column)}" for column in schema.columns]
        if not schema.columns:
            # A table without columns cannot exist in DuckDB; its rows are all alike and carry nothing.
            columns = ["_walrelay_no_columns BOOLEAN"]
        if not rows.files or not schema.columns:
            connection.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(columns)})")
            return 0
        landed = [f"landed_{place}" for place in range(len(schema.columns))]
        selected = ", ".join(
            f"{projection(column, name)} AS {quoted(column.name)}"
            for column, name in zip(schema.columns, landed, strict=True)
        )
        files = "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in rows.paths()) + "]"
        # A directory called key=value would otherwise become a column.
        source = f"read_parquet({files}, union_by_name=false, hive_partitioning=false)"
        connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT {selected} FROM {source} AS landed({', '.join(landed)})"
        )
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        count = int(found[0]) if found else 0
        if count != rows.rows_total:
            raise DestinationError(f"{table} took {count} of {rows.rows_total} rows")
        return count

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return None

    @contextmanager
    def _open(self) -> Iterator[DuckDBPyConnection]:
        """The file, ours alone; closed on the way out, and an open transaction rolled back."""
        with self._lock:
            connection = self._connect()
            try:
                yield connection
            except _duckdb().Error as error:
                raise failure(error, self.path) from error
            finally:
                connection.close()

    def _connect(self) -> DuckDBPyConnection:
        duckdb = _duckdb()
        assert self._context is not None, "startup() comes first"
        deadline = time.monotonic() + self._context.settings.busy_timeout.total_seconds()
        told = False
        while True:
            try:
                opened: DuckDBPyConnection = duckdb.connect(str(self.path))
                # Set afterwards, since a program that has the file open itself must not be refused for other settings.
                for name, value in self._settings.items():
                    opened.execute(f"SET {name} = '{value}'")
                return opened
            except duckdb.Error as error:
                problem = failure(error, self.path)
                if not isinstance(problem, DestinationBusyError) or time.monotonic() >= deadline:
                    raise problem from error
                if not told:
                    self._context.notify(f"waiting: {problem.message}")
                    told = True
                time.sleep(0.1)


def failure(error: Exception, path: Path) -> DestinationError | DiskFullError:
    """DuckDB's error as ours. Its text may quote values, so only what we recognise is repeated."""
    said = str(error)
    if "Could not set lock" in said or "Conflicting lock" in said or "used by another process" in said:
        holder = re.search(r"\(PID (\d+)\)", said)
        who = f"process {holder[1]}" if holder else "another process"
        return DestinationBusyError(f"{path} is open in {who}")
    if "different configuration" in said:
        return DestinationBusyError(f"{path} is open in this same program, with other settings")
    if "No space left" in said or "out of disk" in said.lower():
        return DiskFullError(f"the disk is full: {path.parent}", hint="Free some space, then run again.")
    if "not a valid DuckDB database" in said or "storage version" in said.lower() or "newer version" in said:
        return DestinationCorruptError(f"{path} is not a database that this DuckDB can read")
    if "ermission denied" in said or "Read-only file system" in said or "Cannot open file" in said:
        return DestinationNotWritableError(f"cannot write to {path}")
    return DestinationError(f"DuckDB failed ({type(error).__name__})", hint="Run again with --debug for its own words.")


def _duckdb() -> Any:
    try:
        import duckdb  # an extra
    except ImportError as error:
        raise MissingExtraError("DuckDB is not installed", hint="pip install 'walrelay[duckdb]'") from error
    return duckdb
