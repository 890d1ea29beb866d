"""COPY on a socket: whatever the cuts between reads and the size of the buffer, the same rows and a clean end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walrelay.errors import BadBytesError, ConnectionLostError, QueryError
from walrelay.postgres.copy_socket import SocketCopy
from walrelay.wire.copy_binary import SIGNATURE, CopyBuffer
from walrelay.wire.copy_bytes import ByteBuffer

TRAILER = b"\xff\xff"
HEADER = SIGNATURE + bytes(8)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def row(value: bytes) -> bytes:
    return struct.pack("!hi", 1, len(value)) + value


def stream(
    values: list[bytes], *, end: bytes = message(b"c", b"") + message(b"C", b"COPY 3\0") + message(b"Z", b"I")
) -> bytes:
    """What the server sends: the header shares a message with whatever comes first."""
    bodies = [row(value) for value in values] + [TRAILER]
    bodies[0] = HEADER + bodies[0]
    notice = message(b"N", b"SNOTICE\0\0")
    return message(b"H", b"\1\0\1\0\1") + notice + b"".join(message(b"d", body) for body in bodies) + end


def receive(sent: bytes, *, capacity: int, cut: int = 1 << 30) -> list[bytes]:
    found: list[bytes] = []
    with talking(sent, cut) as connection:
        for rows in SocketCopy(connection, CopyBuffer(1, framed=True, capacity=capacity)).run(b"COPY"):
            for start, length in zip(rows.starts[0], rows.lengths[0], strict=True):
                found.append(rows.buf[start : start + length].tobytes())
    return found


def receive_bytes(sent: bytes, *, capacity: int, cut: int = 1 << 30) -> tuple[bytes, int | None]:
    with talking(sent, cut) as connection:
        copy = SocketCopy(connection, ByteBuffer(capacity))
        return b"".join(bytes(chunk) for chunk in copy.run(b"COPY")), copy.sent


@contextmanager
def talking(sent: bytes, cut: int) -> Iterator[Any]:
    """A connection on which a server sends this, in pieces."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        theirs.recv(1 << 16)
        for begin in range(0, len(sent), cut):
            theirs.sendall(sent[begin : begin + cut])

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield SimpleNamespace(fileno=ours.fileno)
    finally:
        server.join()
        theirs.close()
        ours.close()


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(24, 700), st.integers(1, 800))
def test_every_cut_and_capacity_gives_the_same_rows(values: list[bytes], capacity: int, cut: int) -> None:
    assert receive(stream(values), capacity=capacity, cut=cut) == values


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(8, 700), st.integers(1, 800))
def test_every_cut_and_capacity_gives_the_same_bytes(values: list[bytes], capacity: int, cut: int) -> None:
    whole = HEADER + b"".join(row(value) for value in values) + TRAILER
    assert receive_bytes(stream(values), capacity=capacity, cut=cut) == (whole, 3)


def test_bytes_that_end_without_a_trailer_or_within_an_impossible_message_are_bad() -> None:
    begun = message(b"H", b"\1\0\1\0\1") + message(b"d", HEADER + row(b"x"))
    for end in (message(b"c", b"") + message(b"Z", b"I"), b"d\0\0\0\1" + bytes(10), bytes(12)):
        with pytest.raises(BadBytesError):
            receive_bytes(begun + end, capacity=50)


def test_an_error_among_the_bytes_is_the_servers() -> None:
    failure = message(b"E", b"SERROR\0C22012\0M" + b"division by zero " * 50 + b"\0\0") + message(b"Z", b"I")
    with pytest.raises(QueryError, match="division by zero"):
        receive_bytes(message(b"H", b"\1\0\1\0\1") + message(b"d", HEADER + row(b"x")) + failure, capacity=50)


def test_a_buffer_that_ends_within_the_last_messages_still_comes_to_an_end() -> None:
    values = [b"x" * 40] * 3
    whole = stream(values)
    for capacity in range(24, len(whole) + 8):
        assert receive(whole, capacity=capacity) == values


def test_an_error_from_the_server_is_raised_after_it_is_ready() -> None:
    failure = message(b"E", b"SERROR\0C22012\0Mdivision by zero\0D(secret)\0\0") + message(b"Z", b"I")
    with pytest.raises(QueryError, match="division by zero") as caught:
        receive(message(b"H", b"\1\0\1\0\1") + message(b"d", HEADER + row(b"x")) + failure, capacity=100)
    assert "secret" not in str(caught.value)


def test_a_connection_that_closes_early_is_lost() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(stream([b"x"])[:30])
    theirs.close()
    connection: Any = SimpleNamespace(fileno=ours.fileno)
    with pytest.raises(ConnectionLostError):
        list(SocketCopy(connection, CopyBuffer(1, framed=True, capacity=100)).run(b"COPY"))
    ours.close()


@pytest.mark.parametrize("end", [message(b"Z", b"I"), b"\x00\x00\x00\x00\x00\x00\x00"])
def test_what_does_not_belong_there_is_bad_bytes(end: bytes) -> None:
    with pytest.raises(BadBytesError):
        receive(message(b"H", b"\1\0\1\0\1") + message(b"d", HEADER + row(b"x")) + end, capacity=100)
