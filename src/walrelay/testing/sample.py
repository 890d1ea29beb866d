"""What the tables of a publication hold at one instant, and which transactions made it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.visibility import VisibleTransactions

Connection = psycopg.Connection[Any]
Row = tuple[tuple[str, str], ...]
"""A row as its columns that are not NULL, by name, with their texts: columns added meanwhile change nothing."""

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class TableContents:
    """All rows of a table, sorted; values are what `postgres_text` gives for them, None is NULL."""

    columns: tuple[str, ...]
    rows: list[tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class Sample:
    """The contents of all tables in one snapshot. Everything it saw is flushed, and ends at or before `lsn`."""

    snapshot: str
    """`pg_current_snapshot()`: a log replayed with exactly the transactions visible in it gives these contents."""
    lsn: Lsn
    """`pg_current_wal_insert_lsn()` just after: a log that holds all up to here holds all that is visible."""
    tables: Mapping[str, TableContents]

    def visible(self, xid: int) -> bool:
        """Whether the sample shows a committed transaction of the log, by the 32-bit xid of its BEGIN."""
        return VisibleTransactions.parse(self.snapshot).sees(xid)

    def state(self) -> dict[str, list[Row]]:
        """The rows of all tables that have some; comparable with `Replica.state()`."""
        return {
            name: sorted(plain_row(dict(zip(table.columns, row, strict=True))) for row in table.rows)
            for name, table in self.tables.items()
            if table.rows
        }


def plain_row(values: Mapping[str, str | None]) -> Row:
    return tuple(sorted((column, value) for column, value in values.items() if value is not None))


def take_sample(connection: Connection, publication: str) -> Sample:
    """Read all tables of a publication, while others write to them; the connection must be outside a transaction.

    Afterwards an empty transaction with a logical message is committed, so that what was seen is flushed (a crash
    cannot undo it) and the log goes on past `Sample.lsn`.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise ValueError("a sample needs a snapshot of its own: end the connection's transaction first")
    with connection.transaction():
        found = connection.execute(
            "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2",
            (publication,),
        ).fetchall()
    tables = [TableName(*row) for row in found]
    if not tables:
        raise ValueError(f"publication {publication!r} has no tables")
    sample = _read_whole(connection, tables)
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute("SELECT pg_logical_emit_message(true, 'walrelay-sample', '')")
    return sample


def _read_whole(connection: Connection, tables: list[TableName]) -> Sample:
    for attempt in range(_ATTEMPTS):
        try:
            with connection.transaction():
                return _read(connection, tables)
        except errors.DeadlockDetected:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _read(connection: Connection, tables: list[TableName]) -> Sample:
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute("SET LOCAL TimeZone = 'UTC'")
    connection.execute("SET LOCAL DateStyle = 'ISO'")
    connection.execute("SET LOCAL bytea_output = 'hex'")
    # Before the snapshot: one taken earlier would see a table empty that was truncated or rewritten meanwhile
    # (documentation of Postgres, "Caveats" of MVCC). LOCK itself takes none.
    names = sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
    row = connection.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return Sample(row[0], Lsn.parse(row[1]), {str(table): _contents(connection, table) for table in tables})


def _contents(connection: Connection, table: TableName) -> TableContents:
    name = sql.Identifier(table.schema, table.name)
    columns = connection.execute(
        "SELECT attname::text, atttypid = 'uuid'::regtype FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname",
        (str(table),),
    ).fetchall()
    # Arrow has a uuid as its 16 bytes.
    shown = [sql.SQL("uuid_send({})::text" if uuid else "{}::text").format(sql.Identifier(c)) for c, uuid in columns]
    rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(shown), name)).fetchall()
    return TableContents(
        tuple(column for column, _ in columns),
        sorted((tuple(row) for row in rows), key=lambda row: [(value is not None, value) for value in row]),
    )
