"""Tables in a DuckDB file: copies replace them, changes keep them current, each in one transaction.

DuckDB lets one process in at a time, so the file is open only while something is written.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from walrelay.decode.base import DUCKDB, Target
from walrelay.destinations.base import DestinationContext, SimpleDestination, TableRows, WriteResult
from walrelay.destinations.duckdb_apply import Application
from walrelay.destinations.duckdb_load import PIECE_BYTES, Loading, Piece, cut, has_unfinished
from walrelay.destinations.duckdb_names import refuse_twins
from walrelay.destinations.duckdb_progress import WHOLE, ProgressBook, place
from walrelay.destinations.duckdb_shape import comment
from walrelay.destinations.duckdb_types import quoted
from walrelay.destinations.events import EventBatch
from walrelay.destinations.turns import Turns
from walrelay.errors import (
    DestinationBusyError,
    DestinationCorruptError,
    DestinationError,
    DestinationNotWritableError,
    DiskFullError,
    MissingExtraError,
)
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
FILE = "_walrelay_file"
"""What our own DuckDB calls the file while changes are written: no schema of a source has this name."""
WAL_BYTES = 16 * 1024
"""DuckDB's own log beyond which it is worked into the file. It is read again whenever the file is opened, by us or by
others, which takes longer than writing a checkpoint once it is longer than this."""
LONGEST_HOLD = 0.5
"""Seconds for which threads of ours may pass the file on to each other before others get a chance."""
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two attempts to open a file that others have."""
GONE = ("No files found", "No such file")
"""How DuckDB says that a file is not there any more."""
ATTEMPTS = 10
"""How often a batch is begun again because compaction has replaced a file of the log meanwhile."""


class DuckDBDestination(SimpleDestination):
    """A DuckDB file. Tables keep schema, name, column names and order; `_walrelay.tables` says what was copied when,
    and the primary key, which also stands in each table's comment."""

    name = "duckdb"
    target: Target = DUCKDB
    lands_files = True
    takes_events = True
    materializes = True

    def __init__(
        self,
        path: str | Path,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        piece_bytes: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._piece_bytes = piece_bytes
        # The order of rows in a table means nothing, and keeping it costs time and memory.
        self._settings: dict[str, str] = {"preserve_insertion_order": "false"}
        if memory_limit is not None:
            self._settings["memory_limit"] = memory_limit
        if threads is not None:
            self._settings["threads"] = str(threads)
        self._threads = threads or 1
        self._lock = Turns()
        self._loads: dict[TableId, threading.Lock] = {}
        self._touched: set[TableId] = set()
        """Tables of which the file may know something."""
        self._always_look = False
        """Whether it may know something of others, too."""
        self._held_since = 0.0
        """Since when the file is attached; 0 when it is not."""
        self._context: DestinationContext | None = None
        self._session: DuckDBPyConnection | None = None
        """A DuckDB without a file. The file is attached for each batch: that takes a millisecond, opening it twenty."""

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
            book = _book(connection)
            book.create()
            self._touched = set(book.tables())
            self._always_look = has_unfinished(connection)
            ((self._threads,),) = connection.execute("SELECT current_setting('threads')").fetchall()

    def shutdown(self) -> None:
        with self._lock:
            if self._session is not None:
                self._held_since = 0.0
                with suppress(_duckdb().Error):
                    self._settle(self._session)
                self._session.close()
                self._session = None
        self._context = None

    def staging_root(self) -> Path | None:
        return self.path.parent / f".{self.path.name}.walrelay"

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied, and what an attempt has left. The copy replaces the table; until then the old rows
        stay readable."""
        if schema.id not in self._touched and not self._always_look:
            return  # with hundreds of new tables, each look at the file would be felt
        with self._alone(schema), self._attached() as (connection, catalog):
            book = ProgressBook(connection, catalog)
            connection.execute("BEGIN")
            Loading(schema).drop(connection, catalog)
            if book.knows(schema.id):
                book.forget(schema.id)
            connection.execute("COMMIT")

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        assert self._context is not None, "startup() comes first"
        # One piece of all is a little quicker.
        piece_bytes = self._piece_bytes or PIECE_BYTES * self._threads if self._context.others_wait else sys.maxsize
        loading, pieces = Loading(schema), cut(schema, rows.files, piece_bytes, threads=self._threads)
        self._touched.add(schema.id)
        with self._alone(schema):
            return self._write_pieces(schema, rows, loading, pieces)

    def _alone(self, schema: TableSchema) -> threading.Lock:
        """Two copies of one table would build on each other."""
        return self._loads.setdefault(schema.id, threading.Lock())

    def _write_pieces(self, schema: TableSchema, rows: TableRows, loading: Loading, pieces: list[Piece]) -> WriteResult:
        try:
            count = self._load_before_last(schema, loading, pieces)
            with self._attached() as (connection, catalog):
                connection.execute("BEGIN")
                self._prepare(connection, catalog, schema)
                if len(pieces) > 1:
                    count += loading.add(connection, catalog, pieces[-1], first=False)
                    loading.put_in_place(connection, catalog)
                else:
                    count += loading.replace(connection, catalog, pieces)
                if pieces and count != rows.rows_total:
                    raise DestinationError(f"{schema.name} took {count} of {rows.rows_total} rows")
                self._record_copy(connection, catalog, schema, count, rows.snapshot_lsn)
                hit("destination.before_commit")
                connection.execute("COMMIT")
        except BaseException:
            if len(pieces) > 1:
                with suppress(Exception), self._attached() as (connection, catalog):
                    loading.drop(connection, catalog)
            raise
        return WriteResult(durable=True, rows=count)

    def _load_before_last(self, schema: TableSchema, loading: Loading, pieces: list[Piece]) -> int:
        """All pieces but the last; between two of them the file is free for others."""
        assert self._context is not None, "startup() comes first"
        count = 0
        for number, piece in enumerate(pieces[:-1]):
            if self._context.stopping.is_set():
                raise DestinationError(f"stopped while {schema.name} was loaded", hint="The next run copies it again.")
            with self._attached() as (connection, catalog):
                connection.execute("BEGIN")
                if number == 0:
                    self._prepare(connection, catalog, schema)
                count += loading.add(connection, catalog, piece, first=number == 0)
                connection.execute("COMMIT")
            hit("destination.piece")
        return count

    @staticmethod
    def _prepare(connection: DuckDBPyConnection, catalog: str, schema: TableSchema) -> None:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(schema.name.schema)}")
        refuse_twins(connection, schema)

    @staticmethod
    def _record_copy(
        connection: DuckDBPyConnection, catalog: str, schema: TableSchema, count: int, snapshot_lsn: Lsn | None
    ) -> None:
        connection.execute(comment(place(catalog, schema.name), schema))
        connection.execute(
            "INSERT OR REPLACE INTO _walrelay.tables VALUES (?, ?, ?, ?, ?, ?, ?, now())",
            [
                schema.name.schema, schema.name.name, schema.id, list(schema.primary_key),
                [str(column.type) for column in schema.columns], count,
                None if snapshot_lsn is None else str(snapshot_lsn),
            ],
        )  # fmt: skip
        ProgressBook(connection, catalog).copied(schema, snapshot_lsn)

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Everything of the batch that is new, with the position reached, in one transaction."""
        assert self._context is not None, "startup() comes first"
        special_values = self._context.settings.special_values
        if batch.ranges is None:
            self._always_look = True
        else:
            self._touched.update(one.table for one in batch.ranges)
        for attempt in range(1, ATTEMPTS + 1):
            with self._attached() as (connection, catalog):
                connection.execute("BEGIN")
                try:
                    count = Application(connection, catalog, batch, special_values).run()
                except _duckdb().IOException as error:
                    # Compaction may have replaced a file since it was listed.
                    if attempt == ATTEMPTS or not any(words in str(error) for words in GONE):
                        raise
                    continue
                hit("destination.before_commit")
                connection.execute("COMMIT")
                return WriteResult(durable=True, rows=count)
        raise AssertionError("unreachable")

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table, or all tables together, hold every change; None after a copy, until changes came."""
        with self._attached() as (connection, catalog):
            table = WHOLE if table is None else table
            found = ProgressBook(connection, catalog).all([table]).get(table)
            return None if found is None else found.applied

    def _tidy(self, session: DuckDBPyConnection, beyond: int = WAL_BYTES) -> None:
        """Keep DuckDB's own log short."""
        try:
            size = self.path.with_name(f"{self.path.name}.wal").stat().st_size
        except FileNotFoundError:
            return
        if size > beyond:
            session.execute(f"CHECKPOINT {FILE}")

    def _settle(self, session: DuckDBPyConnection) -> None:
        """Leave everything in the file itself, for whoever copies it away; unless somebody has it open."""
        if self._attach(session):
            self._tidy(session, beyond=0)
            self._detach(session)

    @contextmanager
    def _attached(self) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The file, ours alone, within a DuckDB that stays; and what it is called there."""
        with self._lock:
            session = self._session = self._session or self._new_session()
            if not self._held_since:
                if not self._patiently(lambda: self._attach(session)):
                    with self._shared() as found:
                        yield found
                    return
                self._held_since = time.monotonic()
            went_well = False
            try:
                yield session, FILE
                went_well = True
            except _duckdb().Error as error:
                raise failure(error, self.path) from error
            finally:
                self._release(session, went_well)

    def _release(self, session: DuckDBPyConnection, went_well: bool) -> None:
        """Let go of the file, unless another thread of ours waits for it: with many tables, attaching takes longer than
        what is done. Readers elsewhere get their turn nevertheless."""
        with suppress(_duckdb().Error):
            session.execute("ROLLBACK")
        held = time.monotonic() - self._held_since
        if went_well and self._lock.is_wanted and held < LONGEST_HOLD:
            return
        self._held_since = 0.0
        if went_well:
            with suppress(_duckdb().Error):  # what is committed is safe; the next one tries again
                self._tidy(session)
        self._detach(session)
        if held >= LONGEST_HOLD:
            time.sleep(FIRST_PAUSE)

    @contextmanager
    def _shared(self) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The file, which this same program has open elsewhere."""
        connection = self._connect()
        try:
            yield connection, _catalog(connection)
        except _duckdb().Error as error:
            raise failure(error, self.path) from error
        finally:
            connection.close()

    def _new_session(self) -> DuckDBPyConnection:
        session: DuckDBPyConnection = _duckdb().connect()
        settings = {"temp_directory": f"{self.path}.tmp", **self._settings}
        for name, value in settings.items():
            session.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
        # Detaching would otherwise write the last rows of every table that changed anew, for each batch.
        session.execute("PRAGMA disable_checkpoint_on_shutdown")
        return session

    def _attach(self, session: DuckDBPyConnection) -> bool:
        """False when this same program has the file open, and has to share it."""
        try:
            session.execute(f"ATTACH '{str(self.path).replace(chr(39), chr(39) * 2)}' AS {FILE}")
        except _duckdb().Error as error:
            if "already attached" in str(error):
                return False
            raise
        session.execute(f"USE {FILE}")
        return True

    def _detach(self, session: DuckDBPyConnection) -> None:
        """Let go of the file, whatever happened; a DuckDB that cannot is thrown away."""
        try:
            session.execute("USE memory")
            session.execute(f"DETACH {FILE}")
        except _duckdb().Error:
            self._session = None
            session.close()

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
        def connect() -> DuckDBPyConnection:
            opened: DuckDBPyConnection = _duckdb().connect(str(self.path))
            # Set afterwards, since a program that has the file open itself must not be refused for other settings.
            for name, value in self._settings.items():
                opened.execute(f"SET {name} = '{value}'")
            return opened

        return self._patiently(connect)

    def _patiently(self, open_file: Callable[[], T]) -> T:
        """Open the file; wait for others who have it."""
        assert self._context is not None, "startup() comes first"
        deadline = time.monotonic() + self._context.settings.busy_timeout.total_seconds()
        told, pause = False, FIRST_PAUSE
        while True:
            try:
                return open_file()
            except _duckdb().Error as error:
                problem = failure(error, self.path)
                if not isinstance(problem, DestinationBusyError) or time.monotonic() >= deadline:
                    raise problem from error
                if not told and pause >= LONGEST_PAUSE:
                    self._context.notify(f"waiting: {problem.message}")
                    told = True
                time.sleep(pause)
                # A reader is often gone at once.
                pause = min(2 * pause, LONGEST_PAUSE)


def _book(connection: DuckDBPyConnection) -> ProgressBook:
    return ProgressBook(connection, _catalog(connection))


def _catalog(connection: DuckDBPyConnection) -> str:
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


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
