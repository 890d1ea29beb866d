"""The embedded store: a SQLite file."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, event, inspect
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from walrelay.stores.base import LOCK_GRACE, PipelineLock
from walrelay.stores.failures import (
    StoreBusyError,
    StoreDamagedError,
    StoreDiskFullError,
    StoreError,
    StoreNotFoundError,
    StoreNotWritableError,
    StoreUnreachableError,
)
from walrelay.stores.file_lock import pipeline_lock
from walrelay.stores.sql.database import Database, entry
from walrelay.stores.sql.store import SqlStore
from walrelay.stores.sql.tables import pipelines, store_migrations

_WRITES: Final = "walrelay_writes"
_LONGEST_NAME: Final = 100

# SQLite's primary result code → our error, and the words for it.
_BY_CODE: Final[dict[int, tuple[type[StoreError], str]]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "is locked by another program"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "is locked by another program"),
    sqlite3.SQLITE_ERROR: (StoreDamagedError, "does not hold what it should"),
    sqlite3.SQLITE_CORRUPT: (StoreDamagedError, "is damaged"),
    sqlite3.SQLITE_NOTADB: (StoreDamagedError, "is no SQLite database"),
    sqlite3.SQLITE_READONLY: (StoreNotWritableError, "cannot be written"),
    sqlite3.SQLITE_CANTOPEN: (StoreNotWritableError, "cannot be opened"),
    sqlite3.SQLITE_PERM: (StoreNotWritableError, "cannot be opened"),
    sqlite3.SQLITE_FULL: (StoreDiskFullError, "cannot grow: the disk is full"),
    sqlite3.SQLITE_IOERR: (StoreUnreachableError, "cannot be read or written"),
}


class SqliteStore(SqlStore):
    """What a pipeline remembers, in the file `path`. Made when it is not there; several pipelines may share it.

    The file has to be on a local file system: SQLite's locks do not work on most network file systems.
    """

    def __init__(
        self, path: str | os.PathLike[str], pipeline_id: str, *, busy_timeout: timedelta = timedelta(seconds=30)
    ) -> None:
        self.path = Path(path).absolute()
        super().__init__(SqliteDatabase(self.path, busy_timeout), pipeline_id)

    @contextmanager
    def acquire_pipeline_lock(self, patience: float = LOCK_GRACE) -> Iterator[PipelineLock]:
        """A lock on `<file>.<pipeline>.lock`: pipelines that share the file do not exclude each other."""
        lock = pipeline_lock(lock_path(self.path, self.pipeline_id), self.pipeline_id, patience)
        try:
            yield lock
        finally:
            lock.release()


def lock_path(path: Path, pipeline_id: str) -> Path:
    name = quote(pipeline_id, safe=" ")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(pipeline_id.encode()).hexdigest()[:32]
    return path.with_name(f"{path.name}.{name}.lock")


class SqliteDatabase(Database):
    """A connection a transaction: nothing stays open in between, so a fork or a moved file does no harm."""

    def __init__(self, path: Path, busy_timeout: timedelta) -> None:
        self._path = path
        self._timeout = busy_timeout.total_seconds()
        engine = create_engine("sqlite+pysqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)
        event.listen(engine, "begin", _begin)
        super().__init__(engine, schema=None, where=str(path))
        if path.is_dir():
            raise StoreNotWritableError(f"the store {path} is a directory", hint="Give the path of a file.")
        if not path.parent.is_dir():
            raise StoreNotFoundError(f"there is no directory for the store {path}", hint="Make the directory first.")
        try:
            # SQLite would make it by the umask; its journals take the mode of the file.
            with suppress(OSError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            with closing(self._connect("rwc")):
                pass
        except sqlite3.Error as error:
            raise self._named(error) from error

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        # Once it was made it must be there: an empty file in the place of one that is gone would look like a new store.
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode={mode}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,  # transactions are begun by `_begin`
            check_same_thread=False,
        )
        # Also the directory, so that a commit survives a power cut (sqlite.org/pragma.html#pragma_synchronous).
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def _begin_writing(self, connection: Connection) -> Connection:
        return connection.execution_options(**{_WRITES: True})

    def _prepare(self, connection: Connection) -> None:
        # BEGIN IMMEDIATE is the lock.
        tables = inspect(connection).get_table_names()
        if tables and store_migrations.name not in tables:
            raise StoreDamagedError(
                f"{self.where} is the database of another program", hint="Give the path of a file of its own."
            )

    def _enter(self, connection: Connection, pipeline_id: str) -> None:
        connection.execute(insert(pipelines).values(entry(pipeline_id)).on_conflict_do_nothing())

    def _name(self, error: DBAPIError) -> StoreError:
        return self._named(error.orig)

    def _named(self, error: BaseException | None) -> StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return StoreError(f"the store {self.where} failed: {type(error).__name__}")
        primary = code & 0xFF
        if primary == sqlite3.SQLITE_CANTOPEN and not self._path.exists():
            return StoreNotFoundError(f"the store {self.where} does not exist, or no longer")
        kind, words = _BY_CODE.get(primary, (StoreError, "failed"))
        return kind(f"the store {self.where} {words}", context={"sqlite": getattr(error, "sqlite_errorname", code)})


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
