"""The replication connection: START_REPLICATION, receiving in megabytes, telling the server how far it may forget.

libpq connects and authenticates; then the stream is spoken on its socket by hand, as in `copy_socket`, because the
server sends a packet a message and a reader that takes them one by one makes a system call a row. With TLS the bytes
must come through libpq.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import time
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.pq.abc import PGresult

from walrelay.errors import (
    ConnectionLostError,
    PublicationYoungerError,
    RightsError,
    SlotInUseError,
    SlotLostError,
    SourceError,
    SourceUnreachableError,
)
from walrelay.model.lsn import Lsn
from walrelay.model.names import quote_name
from walrelay.postgres.connection import connect_failure, server_error, translate
from walrelay.postgres.rights import quoted_role
from walrelay.postgres.silence import SilenceWatch, Stalled, WatchedConnection, stopping_ends_connecting
from walrelay.postgres.source import PostgresSource
from walrelay.wire.replication import EPOCH_MICROS, OtherFrame, StreamCutter

RECEIVE_BUFFER = 8 * 1024 * 1024
READ_AT_MOST = 1024 * 1024
PATIENCE_MICROSECONDS = 20_000
"""How long one read waits for its megabyte. It is the least a change takes to get through a quiet stream."""
GOODBYE_SECONDS = 3.0
_PROTOCOL = ((160_000, 4), (150_000, 3), (140_000, 2))


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """Which server this is: a restored or promoted one differs."""

    system_identifier: str
    timeline: int
    wal_lsn: Lsn
    database: str


class ReplicationConnection:
    """One walsender. For one thread; `close` may be called from another."""

    def __init__(
        self, source: PostgresSource, *, application: str = "walrelay capture", stopping: Event | None = None
    ) -> None:
        self._source = source
        self._application = application
        self._stopping = stopping
        self._open()

    def _open(self) -> None:
        source = self._source
        conninfo = make_conninfo(
            source.conninfo, replication="database", application_name=self._application, client_encoding="UTF8"
        )
        try:
            with stopping_ends_connecting(self._stopping):
                self._connection = WatchedConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
        except Stalled as error:
            raise translate(error, doing="connecting") from error
        except psycopg.OperationalError as error:
            raise _refused(str(error), source) or connect_failure(error, source) from None
        self._silence = self._connection.watch(
            source.conninfo, source.stall_timeout, pid=self._connection.info.backend_pid, stopping=self._stopping
        )
        self._pgconn = self._connection.pgconn
        self._transport: _Transport | None = None

    def reopen(self) -> None:
        """Connect again, after a stream that was left: the connection is of no other use then."""
        self.close()
        self._open()

    @property
    def pid(self) -> int:
        """Of the server process; behind some poolers 0 or another number."""
        return self._connection.info.backend_pid

    @property
    def server_version(self) -> int:
        return self._connection.info.server_version

    def identify(self) -> SystemIdentity:
        result = self._ask(b"IDENTIFY_SYSTEM", "asking which server this is")
        values = [(result.get_value(0, column) or b"").decode() for column in range(4)]
        return SystemIdentity(values[0], int(values[1]), Lsn.parse(values[2]), values[3])

    def timeline_history(self, timeline: int) -> dict[int, Lsn]:
        """Where each older timeline was left on the way to `timeline`, by its number."""
        result = self._ask(f"TIMELINE_HISTORY {timeline:d}".encode(), f"reading the history of timeline {timeline}")
        lines = (line.split() for line in (result.get_value(0, 1) or b"").decode("utf-8", "replace").splitlines())
        return {int(line[0]): Lsn.parse(line[1]) for line in lines if len(line) > 1 and line[0].isdigit()}

    def start(self, slot: str, publication: str, position: Lsn, *, streaming: bool = True) -> None:
        """Begin to stream from `position`: binary, with messages, and large transactions while they run."""
        protocol = next(number for version, number in _PROTOCOL if self.server_version >= version)
        quoted = quote_name(publication).replace("'", "''")
        options = [f"proto_version '{protocol}'", f"publication_names '{quoted}'", "binary 'true'", "messages 'true'"]
        options += ["streaming 'on'"] if streaming else []
        statement = f"START_REPLICATION SLOT {quote_name(slot)} LOGICAL {position} ({', '.join(options)})"
        kind = _Libpq if self._pgconn.ssl_in_use else _Socket
        try:
            # A role's own setting must not hide the warning that changes are left out (see stream_failure).
            self._connection.execute("SET client_min_messages = warning")
            self._transport = kind(self._pgconn)
            self._transport.start(statement.encode(), self._silence)
        except (OSError, psycopg.Error) as error:
            raise ConnectionLostError("the connection was lost while starting to stream", hint=RESUMES) from error

    def receive(self, cutter: StreamCutter, wait: float) -> bool:
        """Put what came into the cutter; False when nothing came within `wait` seconds."""
        assert self._transport is not None, "start() comes first"
        try:
            received = self._transport.receive(cutter, wait)
            self._silence.begin() if received else self._silence.silent()
        except Stalled as error:
            raise ConnectionLostError(
                f"the connection stalled while receiving changes: {error}", hint=RESUMES
            ) from error
        except (OSError, psycopg.Error) as error:
            raise ConnectionLostError("the connection was lost while receiving changes", hint=RESUMES) from error
        return received

    def confirm(self, received: Lsn, durable: Lsn, *, reply: bool = False) -> None:
        """Standby status update: everything up to `durable` may be forgotten. `reply` asks for a keepalive."""
        assert self._transport is not None, "start() comes first"
        now = int(time.time() * 1_000_000) - EPOCH_MICROS
        message = struct.pack("!cqqqqb", b"r", received, durable, durable, now, reply)
        try:
            self._transport.send(message)
        except (OSError, psycopg.Error) as error:
            raise ConnectionLostError("the connection was lost while confirming", hint=RESUMES) from error

    def finish(self, durable: Lsn) -> None:
        """Confirm for the last time, and wait a moment until the server has heard it."""
        assert self._transport is not None, "start() comes first"
        self.confirm(durable, durable)
        with contextlib.suppress(OSError, psycopg.Error):
            self._transport.finish(GOODBYE_SECONDS)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._connection.close()

    def __enter__(self) -> ReplicationConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: bytes, doing: str) -> PGresult:
        """A walsender's own command: it knows no parameters and no prepared statements."""
        try:
            result = self._connection.execute(command).pgresult
        except psycopg.Error as error:
            failure = translate(error, doing=doing)
            if isinstance(failure, ConnectionLostError):
                failure = ConnectionLostError(failure.message, hint=RESUMES, context=failure.context)
            raise failure from error
        assert result is not None
        return result


RESUMES = "walrelay connects again and goes on where it was; if it keeps happening look at the server's log."


def _refused(said: str, source: PostgresSource) -> SourceError | None:
    """Failures to connect that only a walsender has; libpq gives no SQLSTATE for them."""
    if "WAL sender" in said or "walsender" in said:
        hint = (
            f"ALTER ROLE {quoted_role(source)} REPLICATION; (managed services: grant it the role that stands for that)."
        )
        return RightsError(f"{source.location}: the role may not replicate", hint=hint)
    if "max_wal_senders" in said:
        hint = "Raise max_wal_senders, or stop another standby or subscriber."
        return SourceUnreachableError(f"{source.location} has no connection left for replication", hint=hint)
    return None


def stream_failure(frame: OtherFrame, slot: str) -> SourceError | None:
    """What a message that is not data means: None for notices and the like."""
    fields: dict[bytes, str] = {}
    if frame.kind in (b"E", b"N"):
        fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in frame.body.split(b"\0") if part}
        if fields.get(b"R") in ("LoadPublications", "get_publication_oid", "GetPublicationByName"):
            # Up to 17 an error. From 18 on only a warning, and every change from there on is left out.
            return PublicationYoungerError(
                "the publication was not there when these changes were made", context={"slot": slot}
            )
    if frame.kind == b"E":
        state, said = fields.get(b"C", "XX000"), fields.get(b"M", "")
        if state == "55006":
            pid = re.search(r"PID (\d+)", said)
            hint = f"Stop the other reader, or end it with SELECT pg_terminate_backend({pid[1]})." if pid else None
            return SlotInUseError(f"the source said «{said}»", hint=hint, context={"slot": slot})
        if state == "55000" and ("slot" in said or "WAL" in said):
            return SlotLostError(f"the source said «{said}»", context={"slot": slot})
        if state == "58P01" and "WAL segment" in said:
            return SlotLostError(f"the source said «{said}»", context={"slot": slot})
        return server_error(state, said, doing="streaming changes")
    if frame.kind in (b"c", b"C", b"Z"):
        return ConnectionLostError("the server ended the stream", hint=RESUMES)
    return None


class _Transport(Protocol):
    def start(self, statement: bytes, silence: SilenceWatch) -> None: ...
    def receive(self, cutter: StreamCutter, wait: float) -> bool: ...
    def send(self, message: bytes) -> None: ...
    def finish(self, wait: float) -> None: ...
    def close(self) -> None: ...


class _Socket:
    """libpq's socket, read directly."""

    def __init__(self, pgconn: Any) -> None:
        self._socket = socket.socket(fileno=os.dup(pgconn.socket))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def start(self, statement: bytes, silence: SilenceWatch) -> None:
        """Whose answer comes through `receive`."""
        silence.begin()
        self._socket.setblocking(True)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        patience = struct.pack("@ll", 0, PATIENCE_MICROSECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        # A server that takes nothing in for a minute is gone; without this a full send buffer would hang us.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 60, 0))
        self._socket.sendall(b"Q" + struct.pack("!i", len(statement) + 5) + statement + b"\0")

    def receive(self, cutter: StreamCutter, wait: float) -> bool:
        if not self._poll.poll(wait * 1000):
            return False
        received = False
        while not cutter.full:
            room = cutter.room()[:READ_AT_MOST]
            try:
                count = self._socket.recv_into(room, len(room), socket.MSG_WAITALL)
            except BlockingIOError:
                break
            if count == 0:
                raise ConnectionError("the server closed the connection")
            cutter.received(count)
            received = True
            if count < len(room):
                break
        return received

    def send(self, message: bytes) -> None:
        self._socket.sendall(b"d" + struct.pack("!i", len(message) + 4) + message)

    def finish(self, wait: float) -> None:
        """CopyDone; the server then sends its own, after all that was on the way."""
        self._socket.sendall(b"c" + struct.pack("!i", 4))
        deadline = time.monotonic() + wait
        tail = b""
        while (left := deadline - time.monotonic()) > 0 and self._poll.poll(left * 1000):
            try:
                got = self._socket.recv(READ_AT_MOST)
            except BlockingIOError:
                continue
            tail = (tail + got)[-6:]
            if not got or tail.endswith(b"Z\0\0\0\5I"):
                return

    def close(self) -> None:
        # Both ends of the dup see it: the server notices at once, also when libpq still holds its descriptor.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _Libpq:
    """For TLS: message by message through libpq, framed again as on the wire."""

    def __init__(self, pgconn: Any) -> None:
        self._pgconn = pgconn
        self._rest: list[bytes] = []
        self._ending = self._over = False
        pgconn.notice_handler = lambda result: self._rest.append(_report(b"N", result))

    def start(self, statement: bytes, silence: SilenceWatch) -> None:
        self._pgconn.nonblocking = 0
        self._pgconn.send_query(statement)
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN)
        silence.begin()
        while self._pgconn.is_busy():
            if poll.poll(silence.interval * 1000):
                self._pgconn.consume_input()
            else:
                silence.silent()
        silence.begin()
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.COPY_BOTH:
            return
        self._rest.append(_report(b"E", result))
        self._over = True

    def receive(self, cutter: StreamCutter, wait: float) -> bool:
        received = False
        deadline = time.monotonic() + wait
        while not cutter.full:
            if not self._rest and not self._take(0 if received else max(0.0, deadline - time.monotonic())):
                break
            frame = self._rest[0]
            room = cutter.room()
            count = min(len(room), len(frame))
            room[:count] = frame[:count]
            cutter.received(count)
            received = True
            if count == len(frame):
                self._rest.pop(0)
            else:
                self._rest[0] = frame[count:]
        return received

    def _take(self, wait: float) -> bool:
        """One message from libpq, if one comes in time."""
        deadline = time.monotonic() + wait
        while not self._over:
            count, message = self._pgconn.get_copy_data(1)
            if count > 0:
                self._rest.append(b"d" + struct.pack("!i", count + 4) + bytes(message))
                return True
            if count == -1:
                # An error ends the stream too, and is then what libpq has next.
                result = None if self._ending else self._pgconn.get_result()
                failed = result is not None and result.status == pq.ExecStatus.FATAL_ERROR
                self._rest.append(_report(b"E", result) if failed else b"c" + struct.pack("!i", 4))
                self._over = True
                return True
            if self._rest:
                return True  # a notice
            poll = select.poll()
            poll.register(self._pgconn.socket, select.POLLIN)
            left = deadline - time.monotonic()
            if not poll.poll(max(0.0, left) * 1000):
                return False
            self._pgconn.consume_input()
        return False

    def send(self, message: bytes) -> None:
        self._pgconn.put_copy_data(message)
        self._pgconn.flush()

    def finish(self, wait: float) -> None:
        self._ending = True
        self._pgconn.put_copy_end()
        self._pgconn.flush()
        deadline = time.monotonic() + wait
        while self._take(max(0.0, deadline - time.monotonic())):
            if self._rest.pop(0)[:1] == b"c":
                return

    def close(self) -> None:
        pass


def _report(kind: bytes, result: Any) -> bytes:
    """An error or a notice as it was on the wire, as far as `stream_failure` looks at it."""
    fields = (
        (b"C", pq.DiagnosticField.SQLSTATE, b"XX000"),
        (b"M", pq.DiagnosticField.MESSAGE_PRIMARY, b""),
        (b"R", pq.DiagnosticField.SOURCE_FUNCTION, b""),
    )
    told = ((mark, (result and result.error_field(field)) or otherwise) for mark, field, otherwise in fields)
    body = b"".join(mark + value + b"\0" for mark, value in told) + b"\0"
    return kind + struct.pack("!i", len(body) + 4) + body
