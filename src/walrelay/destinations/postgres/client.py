"""Connections to the database that is written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, RLock
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from walrelay.destinations.postgres.failures import login_failure, writing
from walrelay.errors import SourceError
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource

Connection = psycopg.Connection[Any]

LOCK_TIMEOUT = timedelta(seconds=10)
"""How long a statement waits for readers who hold a lock on its table; others wait behind it meanwhile."""
SESSION = (
    # Values are read as they were written, whatever this server's defaults are; names mean what they say.
    "SET search_path = ''; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';"
    " SET lc_monetary = 'C'; SET xmloption = 'content'; SET bytea_output = 'hex'; SET extra_float_digits = 1;"
    " SET standard_conforming_strings = on; SET default_transaction_isolation = 'read committed';"
    # A batch is joined to its table once: compiling the plan takes longer than that.
    " SET jit = off; SET work_mem = '64MB'; SET temp_buffers = '64MB'; SET maintenance_work_mem = '256MB';"
    # What is said to be durable is.
    " SET synchronous_commit = on; SET default_transaction_read_only = off"
)


@dataclass(frozen=True)
class Server:
    """Where the database is. Travels to Spark's tasks: pickled, since it holds the password."""

    source: PostgresSource
    lock_timeout: timedelta = LOCK_TIMEOUT

    @property
    def location(self) -> str:
        return self.source.location

    def connect(self, application: str, stopping: Event | None = None) -> Connection:
        """A session set up for writing, which commits by itself."""
        try:
            connection = connect(self.source, application=application, stopping=stopping)
        except SourceError as error:
            raise login_failure(error, self.location) from error
        with writing("setting up the session"):
            milliseconds = int(self.lock_timeout.total_seconds() * 1000)
            run(connection, f"{SESSION}; SET lock_timeout = {milliseconds}")
        return connection


@dataclass
class Sessions:
    """The connections of a run: one by which changes come, which stays, and others for a while."""

    server: Server
    stopping: Event
    _main: Connection | None = None
    _turn: RLock = field(default_factory=RLock)
    generation: int = 0
    """Counts the connections by which changes came: temporary tables live as long as one."""

    @contextmanager
    def main(self) -> Iterator[Connection]:
        """The connection that stays; one thread at a time. What was begun and not committed is rolled back."""
        with self._turn:
            if self._main is None or self._main.closed:
                self._main = self.server.connect("walrelay", self.stopping)
                self.generation += 1
            connection = self._main
            try:
                with writing("talking to it"):
                    yield connection
            finally:
                self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        """Idle again, or gone: a connection of which nobody knows what it does is closed."""
        if connection.closed:
            self._main = None
        elif connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                connection.rollback()
            except psycopg.Error:
                connection.close()
                self._main = None

    @contextmanager
    def another(self, doing: str) -> Iterator[Connection]:
        connection = self.server.connect(f"walrelay {doing}", self.stopping)
        try:
            with writing(doing):
                yield connection
        finally:
            connection.close()

    def close(self) -> None:
        with self._turn:
            connection, self._main = self._main, None
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()


def run(connection: Connection, statement: str, values: tuple[Any, ...] | None = None) -> psycopg.Cursor[Any]:
    """Carry out a statement that was put together here. Without values a percent sign is one."""
    return connection.execute(statement.encode(), values)


def rows(connection: Connection, question: str, values: tuple[Any, ...] | None = None) -> list[Any]:
    """As plain tuples."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(question.encode(), values).fetchall()
