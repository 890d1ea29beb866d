"""Connections to the source, and the one place where Postgres's errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.rows import namedtuple_row

from walrelay.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    DatabaseMissingError,
    QueryError,
    RecoveryConflictError,
    RightsError,
    RowSecurityError,
    SourceError,
    SourceUnreachableError,
    StoppedError,
    TableMissingError,
)
from walrelay.postgres.silence import SilenceWatch, Stalled, WatchedConnection, stopping_ends_connecting
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.tls import tls_failure

Connection = psycopg.Connection[Any]

SESSION = (
    # Text is decoded as UTF-8; a filter by row security must fail loudly, not hide rows (FIELD, preflight); a copy may
    # take hours; a table's tasks are our parallelism.
    "SET client_encoding = 'UTF8'; SET row_security = off; SET statement_timeout = 0;"
    " SET idle_in_transaction_session_timeout = 0; SET max_parallel_workers_per_gather = 0;"
    " SET synchronize_seqscans = off; SET DateStyle = 'ISO'; SET extra_float_digits = 1;"
    # Not what the server's greeting said: that may have been a pooler's.
    " SELECT pg_catalog.pg_backend_pid() AS pid"
)

# First match wins: SQLSTATE (or its class) → our error.
_BY_STATE: tuple[tuple[str, type[SourceError]], ...] = (
    ("28", AuthenticationError),
    ("3D000", DatabaseMissingError),
    ("42501", RightsError),
    ("42P01", TableMissingError),
    ("57P0", ConnectionLostError),
    ("08", ConnectionLostError),
    ("53300", SourceUnreachableError),
)


def error_class(state: str | None) -> type[SourceError]:
    """Our error class for a SQLSTATE."""
    return next((kind for prefix, kind in _BY_STATE if state and state.startswith(prefix)), QueryError)


def translate(error: psycopg.Error, *, doing: str) -> SourceError | StoppedError:
    """Postgres's error as ours. Only its primary message is kept: the detail may quote a row (SEMANTICS 22)."""
    state = error.sqlstate
    if isinstance(error, Stalled) and error.stopping:
        return StoppedError(f"stopped while {doing}")
    if isinstance(error, Stalled):
        return ConnectionLostError(f"the connection stalled while {doing}: {error}")
    if state is None:
        return ConnectionLostError(f"the connection was lost while {doing}")
    said = error.diag.message_primary or "no message"
    return server_error(state, said, doing=doing)


def server_error(state: str, said: str, *, doing: str) -> SourceError:
    """The error for a server's report (SQLSTATE and primary message)."""
    context = {"sqlstate": state}
    if state == "42501" and "row-level security" in said:
        return RowSecurityError(f"row-level security would hide rows while {doing}", context=context)
    if "conflict with recovery" in said:
        return RecoveryConflictError(f"the standby ended a query, to go on replaying, while {doing}", context=context)
    return error_class(state)(f"the source said «{said}» while {doing}", context=context)


def connect(
    source: PostgresSource, *, application: str = "walrelay", autocommit: bool = True, stopping: Event | None = None
) -> Connection:
    """A session set up for us. Failures say whether the server, the password or the database is the matter.

    It waits for ever only for a server that works: a stalled connection raises psycopg's `OperationalError`. Once
    `stopping` is set it waits for two seconds only, whatever the server does.
    """
    try:
        with stopping_ends_connecting(stopping):
            connection = WatchedConnection.connect(
                source.conninfo, application_name=application, autocommit=autocommit, row_factory=namedtuple_row
            )
    except Stalled as error:
        raise translate(error, doing="connecting") from error
    except psycopg.OperationalError as error:
        raise connect_failure(error, source) from None
    except psycopg.ProgrammingError as error:
        # libpq's words would repeat the value, and any of them may be the password.
        raise ConfigError("a parameter of the source's URL has a value that libpq refuses") from error
    try:
        connection.silence = SilenceWatch(source.stall_timeout, stopping=stopping)
        cursor = connection.execute(SESSION)
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        connection.watch(source.conninfo, source.stall_timeout, pid=row.pid if row else 0, stopping=stopping)
    except psycopg.Error as error:
        connection.close()
        raise translate(error, doing="setting up the session") from error
    return connection


def connect_failure(error: psycopg.OperationalError, source: PostgresSource) -> SourceError:
    """libpq gives no SQLSTATE for most failures to connect, so its words must do."""
    said = str(error)
    where = source.location
    if (failure := tls_failure(said, where)) is not None:
        return failure
    if isinstance(error, pg.InvalidPassword) or "password" in said or "authentication" in said or "pg_hba" in said:
        return AuthenticationError(f"{where} refused the user or the password")
    if "role" in said and "does not exist" in said:
        return AuthenticationError(f"{where} does not know this user")
    if "database" in said and "does not exist" in said:
        return DatabaseMissingError(f"{where}: no such database")
    if "too many" in said or "remaining connection slots" in said:
        return SourceUnreachableError(
            f"{where} has no connection left", hint="Raise max_connections, or lower max_tables."
        )
    if "starting up" in said or "shutting down" in said or "recovery mode" in said:
        return SourceUnreachableError(f"{where} is starting up or shutting down", hint="Wait a moment, then run again.")
    reason = "its name cannot be resolved" if "resolve" in said or "translate host" in said else "no answer"
    reason = "the connection was refused" if "refused" in said else reason
    reason = "the connection timed out" if "timeout" in said else reason
    return SourceUnreachableError(f"{where} cannot be reached: {reason}")


@contextmanager
def talking(doing: str) -> Iterator[None]:
    """Turn psycopg's errors raised inside into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, doing=doing) from error
