"""COPY read straight from libpq's socket, so that no call is made per row.

libpq connects, authenticates and sets up the session. Then one simple query is spoken on its socket by hand, from 'Q'
to ReadyForQuery, and libpq never notices: it is idle before and after. Only for sockets without TLS. The server sends
each row as a message of its own; waiting for a full chunk costs one system call a chunk instead of one a row.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from walrelay.errors import BadBytesError, ConnectionLostError, SourceError
from walrelay.postgres.connection import Connection, server_error, translate
from walrelay.postgres.silence import SilenceWatch, Stalled
from walrelay.wire.copy_binary import FRAME_HEADER, MAX_MESSAGE

RECEIVE_BUFFER = 4 * 1024 * 1024
READ_AT_MOST = 1024 * 1024
PATIENCE_MICROSECONDS = 5_000
"""How long one read waits for its megabyte: the tail of a stream comes after this, not never."""


Chunk = TypeVar("Chunk")
Given_co = TypeVar("Given_co", covariant=True)


class Buffer(Protocol[Given_co]):
    """Takes bytes as they come, and gives what they are: whole rows (`CopyBuffer`), or bytes (`ByteBuffer`)."""

    @property
    def finished(self) -> bool: ...
    @property
    def starved(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    @property
    def pending(self) -> memoryview: ...
    @property
    def position(self) -> int: ...
    def room(self) -> memoryview: ...
    def received(self, count: int) -> None: ...
    def need(self, count: int) -> None: ...
    def skip(self, count: int) -> None: ...
    def rows(self) -> Given_co | None: ...


class SocketCopy(Generic[Chunk]):
    """One COPY on one connection. When it does not run to its end the connection must be closed, not used again."""

    def __init__(self, connection: Connection, buffer: Buffer[Chunk]) -> None:
        self._silence: SilenceWatch | None = getattr(connection, "silence", None)
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._buffer = buffer
        self._ready = False
        self._error: SourceError | None = None
        self.sent: int | None = None
        """How many rows the server says it has sent."""

    def run(self, statement: bytes) -> Iterator[Chunk]:
        """What comes, in chunks, until the server is ready for the next query."""
        was_blocking = os.get_blocking(self._socket.fileno())
        try:
            self._prepare(statement)
            while not self._ready:
                rows = self._buffer.rows()
                if rows is not None:
                    yield rows
                elif not self._take_message():
                    self._receive()
        except Stalled as error:
            raise translate(error, doing="copying") from error
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionLostError("the connection was lost while copying") from error
        finally:
            # The flag lives in the kernel and is libpq's too.
            os.set_blocking(self._socket.fileno(), was_blocking)
            self._socket.close()
        if self._error is not None:
            raise self._error
        if not self._buffer.finished:
            raise BadBytesError("the stream ended before its trailer", position=self._buffer.position)

    def _prepare(self, statement: bytes) -> None:
        self._socket.setblocking(True)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        patience = struct.pack("@ll", 0, PATIENCE_MICROSECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self._socket.sendall(b"Q" + struct.pack("!i", len(statement) + 5) + statement + b"\0")

    def _receive(self) -> None:
        """Fill the buffer, or take what came within the patience; blocks while nothing comes."""
        while not self._buffer.full or self._buffer.starved:
            room = self._buffer.room()[:READ_AT_MOST]
            try:
                count = self._socket.recv_into(room, len(room), socket.MSG_WAITALL)
            except BlockingIOError:
                if self._buffer.starved:
                    self._wait()
                    continue
                return
            if count == 0:
                raise ConnectionLostError("the server closed the connection while copying")
            self._buffer.received(count)
            if count < len(room) and not self._buffer.starved:
                return

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if self._silence is None:
            poll.poll()
            return
        self._silence.begin()
        while not poll.poll(self._silence.interval * 1000):
            self._silence.silent()

    def _take_message(self) -> bool:
        """Deal with a message that is not a row, if a whole one stands first."""
        pending = self._buffer.pending
        if len(pending) < FRAME_HEADER:
            self._buffer.need(FRAME_HEADER)
            return False
        kind = pending[:1].tobytes()
        if kind == b"d" and not self._buffer.finished:
            return False
        size = int.from_bytes(pending[1:5], "big", signed=True)
        if size < 4 or size > MAX_MESSAGE:
            raise BadBytesError("a message with an impossible length", position=self._buffer.position)
        if len(pending) < 1 + size:
            self._buffer.need(1 + size)
            return False
        self._handle(kind, pending[5 : 1 + size].tobytes())
        self._buffer.skip(1 + size)
        return True

    def _handle(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"E":
                fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
                self._error = server_error(fields.get(b"C", "XX000"), fields.get(b"M", ""), doing="copying")
            case b"Z":
                self._ready = True
            case b"C":
                said = body.rstrip(b"\0").rpartition(b" ")[2]
                self.sent = int(said) if said.isdigit() else None
            case b"H" | b"c" | b"N" | b"S":
                pass
            case _:
                raise BadBytesError(f"an unexpected message {kind!r}", position=self._buffer.position)
