"""Read one range of a table: COPY (SELECT …) TO STDOUT (FORMAT binary), as buffers of whole rows."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from walrelay.errors import BadBytesError
from walrelay.model.ranges import CtidRange
from walrelay.model.schema import TableSchema
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.copy_socket import SocketCopy
from walrelay.wire.copy_binary import CopyBuffer, Rows
from walrelay.wire.copy_bytes import ByteBuffer

CHUNK_BYTES = 2 * 1024 * 1024


def copy_statement(schema: TableSchema, part: CtidRange) -> sql.Composed:
    """The COPY for one range: the publication's columns and row filter, from that leaf alone."""
    columns = sql.SQL(", ").join(
        sql.SQL("{}::text").format(sql.Identifier(column.name)) if column.as_text else sql.Identifier(column.name)
        for column in schema.columns
    )
    conditions: list[sql.Composable] = []
    if part.first is not None:
        conditions.append(sql.SQL("ctid >= {}").format(sql.Literal(f"({part.first},0)")))
    if part.last is not None:
        conditions.append(sql.SQL("ctid < {}").format(sql.Literal(f"({part.last},0)")))
    if schema.row_filter is not None:
        # Printed by Postgres from its catalog, so it is SQL and no user's text.
        conditions.append(sql.SQL("({})").format(sql.SQL(schema.row_filter)))
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT (FORMAT binary)").format(
        columns, sql.Identifier(part.leaf.name.schema, part.leaf.name.name), where
    )


def copy_rows(connection: Connection, schema: TableSchema, part: CtidRange, *, chunk_bytes: int) -> Iterator[Rows]:
    """Chunks of whole rows, each good until the next is asked for. Ends only when Postgres said that all were sent."""
    yield from _copied(connection, copy_statement(schema, part), len(schema.columns), chunk_bytes)


def copy_query(
    connection: Connection, query: sql.Composable, width: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Rows]:
    """The same for whatever a query gives, which has `width` columns: for some rows of a table."""
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(query)
    yield from _copied(connection, statement, width, chunk_bytes)


class SentBytes:
    """The range as COPY sends it, from its header to its trailer, in chunks that are good until the next is asked for;
    afterwards `rows`, the number that the server gives. For once."""

    def __init__(self, connection: Connection, schema: TableSchema, part: CtidRange, *, chunk_bytes: int) -> None:
        self._connection = connection
        self._statement = copy_statement(schema, part).as_bytes(connection)
        self._chunk_bytes = chunk_bytes
        self.rows: int | None = None

    def __iter__(self) -> Iterator[memoryview | bytes]:
        if self._connection.pgconn.ssl_in_use:
            yield from self._by_libpq()
            return
        copy = SocketCopy(self._connection, ByteBuffer(self._chunk_bytes))
        yield from copy.run(self._statement)
        self.rows = copy.sent

    def _by_libpq(self) -> Iterator[bytes]:
        with talking("copying"), self._connection.cursor() as cursor:
            with cursor.copy(self._statement) as copy:
                waiting, size = list[bytes](), 0
                for message in copy:
                    waiting.append(bytes(message))
                    size += len(message)
                    if size >= self._chunk_bytes:
                        yield b"".join(waiting)
                        waiting, size = [], 0
                yield b"".join(waiting)
            self.rows = cursor.rowcount


def _copied(connection: Connection, copy: sql.Composable, width: int, chunk_bytes: int) -> Iterator[Rows]:
    statement = copy.as_bytes(connection)
    if connection.pgconn.ssl_in_use:
        yield from _through_libpq(connection, statement, CopyBuffer(width, framed=False, capacity=chunk_bytes))
    else:
        yield from SocketCopy(connection, CopyBuffer(width, framed=True, capacity=chunk_bytes)).run(statement)


def _through_libpq(connection: Connection, statement: bytes, buffer: CopyBuffer) -> Iterator[Rows]:
    """With TLS the bytes on the socket are not ours to read; libpq hands out a message at a time."""
    with talking("copying"), connection.cursor() as cursor, cursor.copy(statement) as copy:
        for message in copy:
            begun = 0
            while begun < len(message):
                room = buffer.room()
                taken = min(len(room), len(message) - begun)
                room[:taken] = message[begun : begun + taken]
                buffer.received(taken)
                begun += taken
                if buffer.full:
                    yield from _whole_rows(buffer)
        yield from _whole_rows(buffer)
    if buffer.finished and len(buffer.pending):
        raise BadBytesError("bytes after the trailer", position=buffer.position)
    if not buffer.finished:
        raise BadBytesError("the stream ended before its trailer", position=buffer.position)


def _whole_rows(buffer: CopyBuffer) -> Iterator[Rows]:
    while (rows := buffer.rows()) is not None:
        yield rows
