"""One view of the database for all tasks of a table (SEMANTICS 8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import errors, sql

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.source import PostgresSource


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot; good as long as the connection that exported it lives."""

    name: str
    connection: Connection
    visible: str
    """`pg_current_snapshot()`: which transactions it sees."""
    lsn: Lsn
    """The WAL position about then, for information."""


@contextmanager
def exported_snapshot(
    source: PostgresSource, *, application: str, table: TableName | None = None
) -> Iterator[Snapshot]:
    """Hold a read-only transaction open and give its snapshot's name to whoever imports it.

    The table is locked before the snapshot is taken: to an older snapshot, a table that was rewritten (ALTER TABLE) or
    truncated since looks empty, and the log says nothing about a rewrite.
    """
    connection = connect(source, application=application)
    try:
        with talking("exporting a snapshot"):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if table is not None:
                _lock(connection, table)
            row = connection.execute(
                "SELECT pg_export_snapshot() AS name, pg_current_snapshot()::text AS visible,"
                " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn"
            ).fetchone()
        assert row is not None  # a SELECT without FROM has one row
        yield Snapshot(row.name, connection, row.visible, Lsn.parse(str(row.lsn)))
    finally:
        connection.close()


def _lock(connection: Connection, table: TableName) -> None:
    """Against being rewritten; readers and writers go on. LOCK itself takes no snapshot."""
    name = sql.Identifier(table.schema, table.name)
    try:
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
    except errors.WrongObjectType:
        # A materialized view cannot be locked so.
        connection.execute("ROLLBACK")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")


def import_snapshot(connection: Connection, name: str) -> None:
    """See what the exporter saw."""
    with talking("importing the snapshot"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
