"""The store in a Postgres database: schema `walrelay`."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from functools import cache
from importlib.resources import files
from typing import Any, Final, LiteralString

import psycopg
from sqlalchemy import Connection, create_engine, func, inspect, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema

from walrelay.errors import AuthenticationError, ConfigError, DatabaseMissingError
from walrelay.postgres.connection import connect_failure
from walrelay.postgres.rights import quoted_database, quoted_role
from walrelay.postgres.source import PostgresSource
from walrelay.stores.base import LOCK_GRACE, PipelineLock
from walrelay.stores.failures import (
    StoreAuthenticationError,
    StoreDamagedError,
    StoreDiskFullError,
    StoreError,
    StoreInUseError,
    StoreNotFoundError,
    StoreNotWritableError,
    StoreUnreachableError,
)
from walrelay.stores.sql.database import Database, entry
from walrelay.stores.sql.store import SqlStore
from walrelay.stores.sql.tables import SCHEMA, pipelines

LACKS_RIGHTS: Final = "42501"

# First match wins: SQLSTATE (or its class) → our error, and the words for it.
_BY_STATE: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("28", StoreAuthenticationError, "refused the user or the password"),
    ("3D000", StoreNotFoundError, "does not exist"),
    (LACKS_RIGHTS, StoreNotWritableError, "does not allow it"),
    ("25006", StoreNotWritableError, "is read-only: a standby, perhaps"),
    ("53100", StoreDiskFullError, "has no disk space left"),
    ("53", StoreUnreachableError, "is short of resources"),
    ("42", StoreDamagedError, "does not hold what it should"),
    ("XX", StoreDamagedError, "is damaged"),
    ("08", StoreUnreachableError, "lost the connection"),
    ("57", StoreUnreachableError, "ended the connection or the statement"),
    ("40", StoreUnreachableError, "gave way to another transaction"),
    ("55P03", StoreUnreachableError, "could not take a lock in time"),
)

# A peer that vanished is noticed after a minute, also by the server: it holds the lock until it knows.
_LOCK_SESSION: Final = (
    "SET idle_session_timeout = 0; SET tcp_keepalives_idle = 30;"
    " SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
)


class PostgresStore(SqlStore):
    """What a pipeline remembers, in the schema `walrelay` of the database at `url`. Several pipelines may share it.

    The lock of a pipeline is a session's: it needs a direct connection, or a pooler in session mode.
    """

    def __init__(self, url: str, pipeline_id: str) -> None:
        try:
            self._source = PostgresSource(url)
        except ConfigError as error:
            # Without its cause: libpq's words may repeat the URL, and with it the password.
            raise ConfigError(error.message.replace("the source's URL", "the store's URL"), hint=error.hint) from None
        super().__init__(PostgresDatabase(self._source), pipeline_id)

    @contextmanager
    def acquire_pipeline_lock(self, patience: float = LOCK_GRACE) -> Iterator[PipelineLock]:
        lock = _SessionLock(self._source, self.pipeline_id, patience)
        try:
            yield lock
        finally:
            lock.release()


def pipelines_at(url: str) -> list[str]:
    """The pipelines whose state is in the database at `url`; none when there is no store yet."""
    source = PostgresSource(url)
    try:
        with _session(source, "walrelay store", autocommit=True) as connection:
            found = connection.execute("SELECT to_regclass('walrelay.pipelines') IS NOT NULL").fetchone()
            if found is None or not found[0]:
                return []
            rows = connection.execute("SELECT pipeline_id FROM walrelay.pipelines ORDER BY 1").fetchall()
            return [str(row[0]) for row in rows]
    except psycopg.Error as error:
        raise _named(error, source) from error


class PostgresDatabase(Database):
    def __init__(self, source: PostgresSource) -> None:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: _session(source, "walrelay store"),
            pool_pre_ping=True,  # a server that was restarted is not our caller's matter
            hide_parameters=True,
        )
        super().__init__(engine, schema=SCHEMA, where=source.location)
        self._source = source

    def _begin_writing(self, connection: Connection) -> Connection:
        return connection

    def _prepare(self, connection: Connection) -> None:
        connection.execute(select(func.pg_advisory_xact_lock(_key("migrations"))))
        if not inspect(connection).has_schema(SCHEMA):
            connection.execute(CreateSchema(SCHEMA))

    def _enter(self, connection: Connection, pipeline_id: str) -> None:
        connection.execute(insert(pipelines).values(entry(pipeline_id)).on_conflict_do_nothing())

    def _name(self, error: DBAPIError) -> StoreError:
        return _named(error.orig, self._source)


class _SessionLock:
    """An advisory lock, held by a connection of its own."""

    def __init__(self, source: PostgresSource, pipeline_id: str, patience: float) -> None:
        self._source = source
        self._pipeline_id = pipeline_id
        me = f"walrelay process {os.getpid()} on {socket.gethostname()[:30]}"
        key = _key(f"pipeline {pipeline_id}")
        try:
            self._connection = _session(source, me, autocommit=True)
        except psycopg.Error as error:
            raise _named(error, source) from error
        try:
            self._connection.execute(_LOCK_SESSION)
            deadline = time.monotonic() + patience
            while not self._try(key):
                if time.monotonic() >= deadline:
                    raise StoreInUseError(f"the pipeline {pipeline_id} is being run by {self._holder(key)}")
                time.sleep(LOCK_GRACE / 20)
        except psycopg.Error as error:
            self._connection.close()
            raise _named(error, source) from error
        except BaseException:
            self._connection.close()
            raise

    def check(self) -> None:
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise StoreInUseError(
                f"the connection that held the lock of the pipeline {self._pipeline_id} is lost",
                hint="Start the pipeline again: another process may have taken it over meanwhile.",
            ) from error

    def release(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()

    def _try(self, key: int) -> bool:
        row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
        return row is not None and bool(row[0])

    def _holder(self, key: int) -> str:
        unsigned = key & 0xFFFFFFFFFFFFFFFF
        found = self._connection.execute(
            _lock_holder(), {"high": unsigned >> 32, "low": unsigned & 0xFFFFFFFF}
        ).fetchone()
        if found is None or not found[0]:
            return "a process unknown"
        since = "" if found[1] is None else f", since {found[1].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"{found[0]}{since}"


def _session(source: PostgresSource, application: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    # No prepared statements: poolers do not keep them.
    return psycopg.connect(
        source.conninfo,
        application_name=application,
        client_encoding="utf8",
        prepare_threshold=None,
        autocommit=autocommit,
    )


def _named(error: BaseException | None, source: PostgresSource) -> StoreError:
    """Only the SQLSTATE is told: the server's words may quote what was stored."""
    where = source.location
    state = getattr(error, "sqlstate", None)
    if state is not None:
        context = {"sqlstate": state}
        for prefix, kind, words in _BY_STATE:
            if state.startswith(prefix):
                hint = _grants(source) if state == LACKS_RIGHTS else None
                return kind(f"the store {where} {words}", hint=hint, context=context)
        return StoreError(f"the store {where} refused (SQLSTATE {state})", context=context)
    if not isinstance(error, psycopg.OperationalError):
        return StoreError(f"the store {where} failed: {type(error).__name__}")
    said = connect_failure(error, source)
    if isinstance(said, AuthenticationError):
        return StoreAuthenticationError(f"the store {said.message}")
    if isinstance(said, DatabaseMissingError):
        return StoreNotFoundError(f"the store {said.message}")
    return StoreUnreachableError(f"the store {said.message}")


def _grants(source: PostgresSource) -> str:
    """The first pipeline makes the schema and its tables; others need to be let in."""
    role, database = quoted_role(source), quoted_database(source)
    return (
        f"The role may make the store after GRANT CREATE ON DATABASE {database} TO {role}; or, where another role has"
        f" made it, use it after GRANT USAGE ON SCHEMA {SCHEMA} TO {role}; and"
        f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {role};"
    )


def _key(what: str) -> int:
    """A key for Postgres's advisory locks, which are one number space for all programs of a database."""
    return int.from_bytes(hashlib.sha256(f"walrelay store {what}".encode()).digest()[:8], "big", signed=True)


@cache
def _lock_holder() -> LiteralString:
    text: Any = files("walrelay.stores.sql").joinpath("lock_holder.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal
