"""Notices a connection that has stalled: nothing comes any more, and nothing says that it is broken.

Keepalives and `tcp_user_timeout` find a peer that has vanished. They do not find a proxy, a firewall or a load balancer
that answers for a server it no longer reaches. So whoever waits in silence asks the server on another connection: as
long as it works on our question, or waits for a lock, we wait too; when it waits for us, the bytes between are lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from threading import Event
from typing import Any, Literal, TypeVar

import psycopg
from psycopg.abc import PQGen, PQGenConn
from psycopg.conninfo import make_conninfo

from walrelay.postgres.sql import statement

RV = TypeVar("RV")
Look = Literal["works", "waits", "gone", "unreachable"]
LOOK_SECONDS = 10.0
"""How long the server may take to say what it does."""
STOPPING_SECONDS = 2.0
"""How much silence is borne by who wants to stop."""
INTERVAL_SECONDS = 0.1
_SAID = {
    "waits": "while the server waits for us",
    "gone": "and the server has ended it",
    "unreachable": "and the server cannot be reached",
}
_TOO_MANY = ("53300", "53400")


class Stalled(psycopg.OperationalError):
    """Nothing has come for longer than is borne. `stopping`: only because the wait was to end."""

    stopping = False


class SilenceWatch:
    """For one who waits, in one thread at a time: `begin()`, then `silent()` again and again while nothing comes, which
    raises `Stalled` in the end.

    Two looks in a row must find that the server does not work for us: what it sent just before the first may be on its
    way. Without `look` the limit itself is the end.
    """

    def __init__(
        self, limit: timedelta, look: Callable[[], Look] | None = None, *, stopping: Event | None = None
    ) -> None:
        self._limit = limit.total_seconds()
        self._look = look
        self._stopping = stopping
        self.end: Callable[[], None] = lambda: None
        self.begin()

    @property
    def interval(self) -> float:
        """How often `silent` should be called."""
        return min(INTERVAL_SECONDS, self._limit / 4)

    def begin(self) -> None:
        """Something has come, or was asked just now."""
        self._since = time.monotonic()
        self._look_at = self._since + self._limit
        self._suspected = False
        self._stop_seen: float | None = None

    def silent(self) -> None:
        """Still nothing."""
        now = time.monotonic()
        if self._stopping is not None and self._stopping.is_set():
            self._stop_seen = self._stop_seen or now
            if now - self._stop_seen >= STOPPING_SECONDS:
                stalled = Stalled("it was still waited for when the run was to stop")
                stalled.stopping = True
                raise stalled
        if now >= self._look_at:
            self._judge()

    def _judge(self) -> None:
        quiet = time.monotonic() - self._since
        if self._look is None:
            raise Stalled(f"nothing has come for {quiet:.0f} s")
        found = self._look()
        if found == "works":
            self._suspected = False
            self._look_at = time.monotonic() + self._limit
        elif self._suspected or found == "gone":
            if found == "waits":
                self.end()
            raise Stalled(f"nothing has come for {quiet:.0f} s, {_SAID[found]}")
        else:
            self._suspected = True
            self._look_at = time.monotonic() + self._limit / 4


class WatchedConnection(psycopg.Connection[Any]):
    """A connection all of whose waits are watched. One that has stalled is closed."""

    silence: SilenceWatch | None = None

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[WatchedConnection]:
        gen = super()._connect_gen(conninfo)
        stopping = _wants_to_stop.get()
        return gen if stopping is None else _stoppable(gen, stopping)

    def wait(self, gen: PQGen[RV], interval: float = INTERVAL_SECONDS, timeout: float | None = None) -> RV:
        watch = self.silence
        if watch is None:
            return super().wait(gen, interval, timeout)
        watch.begin()
        try:
            return super().wait(_watched(gen, watch), min(interval, watch.interval), timeout)
        except Stalled as stalled:
            if stalled.stopping:
                # A server that works on it would go on for nobody: a slot that waits for a transaction, say.
                with suppress(psycopg.Error):
                    self.cancel_safe(timeout=STOPPING_SECONDS)
            self.pgconn.finish()
            raise

    def watch(self, conninfo: str, limit: timedelta, *, pid: int, stopping: Event | None) -> SilenceWatch:
        """Watch all waits from now on; `pid` is the server's process."""
        peer = _Peer(self, conninfo, pid, stopping)
        self.silence = SilenceWatch(limit, peer.look, stopping=stopping)
        self.silence.end = peer.end
        return self.silence


_wants_to_stop: ContextVar[Event | None] = ContextVar("wants_to_stop", default=None)


@contextmanager
def stopping_ends_connecting(stopping: Event | None) -> Iterator[None]:
    """In the block, an attempt to connect ends when `stopping` is set."""
    token = _wants_to_stop.set(stopping)
    try:
        yield
    finally:
        _wants_to_stop.reset(token)


def _stoppable(gen: PQGenConn[RV], stopping: Event) -> PQGenConn[RV]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and stopping.is_set():
                stalled = Stalled("it was still waited for when the run was to stop")
                stalled.stopping = True
                raise stalled
            wanted = gen.send(ready)
    except StopIteration as end:
        found: RV = end.value
        return found


def _watched(gen: PQGen[RV], watch: SilenceWatch) -> PQGen[RV]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                watch.begin()
            else:
                watch.silent()
            wanted = gen.send(ready)
    except StopIteration as end:
        found: RV = end.value
        return found


class _Peer:
    """The server's process at the other end of a connection, asked about through another one."""

    def __init__(self, connection: psycopg.Connection[Any], conninfo: str, pid: int, stopping: Event | None) -> None:
        self._pid = pid
        self._stopping = stopping
        info = connection.info
        # Of several hosts, or of several addresses of one, the one that we talk to.
        self._conninfo = make_conninfo(
            conninfo,
            host=info.host,
            hostaddr=info.hostaddr or None,
            port=info.port,
            application_name="walrelay stall check",
        )

    def look(self) -> Look:
        """What the process does. A server that takes no further connection is given the benefit of the doubt."""
        try:
            with self._connected() as connection:
                row = connection.execute(statement("peer"), {"pid": self._pid}).fetchone()
        except psycopg.Error as error:
            full = error.sqlstate in _TOO_MANY or "too many" in str(error) or "connection slots" in str(error)
            return "works" if full else "unreachable"
        if row is None:
            return "gone"
        return "waits" if row[0] else "works"

    def end(self) -> None:
        """It would hold its snapshot and its locks until it notices, which may take hours."""
        with suppress(psycopg.Error), self._connected() as connection:
            connection.execute(statement("end_peer"), {"pid": self._pid})

    def _connected(self) -> WatchedConnection:
        with stopping_ends_connecting(self._stopping):
            connection = WatchedConnection.connect(self._conninfo, autocommit=True)
        connection.silence = SilenceWatch(timedelta(seconds=LOOK_SECONDS), stopping=self._stopping)
        return connection
