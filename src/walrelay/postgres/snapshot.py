"""One view of the database for all tasks of a table (SEMANTICS 8)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from threading import Event
from typing import Final

from psycopg import errors, sql

from walrelay.errors import ConnectionLostError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.source import PostgresSource

BRACKETS = 200
"""How often a standby's snapshot is taken until nothing was replayed meanwhile."""
SETTLE_SECONDS = 5.0
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a standby had replayed around a snapshot, which names no running transaction there.

    A standby makes transactions visible as it replays their commit records, one record after the other, and moves its
    position when it is through with a record. So the snapshot sees every transaction that ends at or before `after`,
    which was read before it was taken, and none whose commit record starts behind the record that begins at `upto`,
    which was read afterwards. That record itself may be half replayed: visible, but not yet counted.
    """

    after: Lsn
    upto: Lsn


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot; good as long as the connection that exported it lives."""

    name: str
    connection: Connection
    visible: str
    """`pg_current_snapshot()`: which transactions it sees. Not to be used on a standby."""
    lsn: Lsn
    """The WAL position about then, for information."""
    replayed: Replayed | None = None
    """On a standby: what decides instead of `visible`."""


@contextmanager
def exported_snapshot(
    source: PostgresSource, *, application: str, table: TableName | None = None, stopping: Event | None = None
) -> Iterator[Snapshot]:
    """Hold a read-only transaction open and give its snapshot's name to whoever imports it.

    The table is locked before the snapshot is taken: to an older snapshot, a table that was rewritten (ALTER TABLE) or
    truncated since looks empty, and the log says nothing about a rewrite. Whoever has it locked is waited for, until
    `stopping` is set.
    """
    connection = connect(source, application=application, stopping=stopping)
    try:
        with talking("exporting a snapshot"):
            standby = connection.execute("SELECT pg_catalog.pg_is_in_recovery() AS standby").fetchone()
            assert standby is not None  # a SELECT without FROM has one row
            if standby.standby:
                snapshot = _between_records(source, connection, table)
            else:
                with _begun(source, connection, table):
                    snapshot = _export(connection)
        yield snapshot
    finally:
        connection.close()


@contextmanager
def _begun(source: PostgresSource, connection: Connection, table: TableName | None) -> Iterator[None]:
    """A transaction whose snapshot is to be taken in the block; the table is locked before, and stays so."""
    connection.execute(_BEGIN)
    if table is None or _lock(connection, table):
        yield
        return
    # LOCK wants a right on the whole table. Who may only read some columns is given the same lock by a SELECT, which
    # takes a snapshot first: so another session has the lock until this one has both.
    look = sql.SQL("SELECT FROM {} LIMIT 0").format(sql.Identifier(table.schema, table.name))
    with connect(source, application="walrelay table lock", autocommit=False) as guard:
        guard.execute(look)
        yield
        connection.execute(look)


def _export(connection: Connection) -> Snapshot:
    """The first statement of the transaction takes its snapshot; what it calls is called afterwards."""
    row = connection.execute(
        "SELECT pg_export_snapshot() AS name, pg_current_snapshot()::text AS visible,"
        " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn"
    ).fetchone()
    assert row is not None
    return Snapshot(row.name, connection, row.visible, Lsn.parse(str(row.lsn)))


def _between_records(source: PostgresSource, connection: Connection, table: TableName | None) -> Snapshot:
    """A standby's snapshot, if possible one during which no record was replayed: then next to nothing is in doubt."""
    with connect(source, application="walrelay replay position") as observer:
        for attempt in count(1):
            with _begun(source, connection, table):
                before = observer.execute("SELECT pg_catalog.pg_last_wal_replay_lsn()::text AS lsn").fetchone()
                assert before is not None
                taken = _export(connection)
            replayed = Replayed(Lsn.parse(before.lsn), taken.lsn)
            if replayed.after == replayed.upto or attempt == BRACKETS:
                return replace(taken, replayed=replayed)
            connection.execute("ROLLBACK")
    raise AssertionError("count() does not end")


def settled_lsn(snapshot: Snapshot) -> Lsn | None:
    """On a standby: a position by which the record that the snapshot may have seen half replayed is through; None when
    it cannot be told. Waits for a moment where the primary is idle."""
    assert snapshot.replayed is not None
    upto, deadline = snapshot.replayed.upto, time.monotonic() + SETTLE_SECONDS
    while True:
        with talking("asking what the standby has replayed"):
            row = snapshot.connection.execute(
                "SELECT pg_catalog.pg_last_wal_replay_lsn()::text AS replayed,"
                " pg_catalog.pg_last_wal_receive_lsn()::text AS received"
            ).fetchone()
        assert row is not None
        position = Lsn.parse(row.replayed)
        # Where nothing more was received, there was no such record.
        if position > upto or (row.received is not None and Lsn.parse(row.received) == upto):
            return position
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def _lock(connection: Connection, table: TableName) -> bool:
    """Against being rewritten; readers and writers go on. LOCK itself takes no snapshot. False when it needs a right
    that the role may lack and still be able to read."""
    name = sql.Identifier(table.schema, table.name)
    try:
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
    except (errors.WrongObjectType, errors.InsufficientPrivilege) as error:
        connection.execute("ROLLBACK")
        connection.execute(_BEGIN)
        # A materialized view cannot be locked so.
        return isinstance(error, errors.WrongObjectType)
    return True


def import_snapshot(connection: Connection, name: str) -> None:
    """See what the exporter saw. A snapshot that is gone went with the exporter's connection."""
    with talking("importing the snapshot"):
        connection.execute(_BEGIN)
        try:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        except (errors.UndefinedObject, errors.InvalidParameterValue) as error:
            # A snapshot lives as long as its exporter; which code says that it is gone depends on the version.
            raise ConnectionLostError("the connection that held the copy's snapshot was ended") from error
