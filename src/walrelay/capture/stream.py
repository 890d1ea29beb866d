"""One connection's stream: the receiver (the caller's thread) reads the socket, cuts the stream and answers the server;
the writer's thread decodes and publishes. The queue between the two is short: when the disk is slow, the server waits.
"""

from __future__ import annotations

import contextlib
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from walrelay.capture.ack import acknowledged
from walrelay.capture.spill import OpenTransactions
from walrelay.capture.writer import LargeTransaction, LogWriter
from walrelay.config.settings import CaptureSettings
from walrelay.errors import ConnectionLostError
from walrelay.failpoints import hit
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import LocalStorage, Storage
from walrelay.model.lsn import Lsn
from walrelay.postgres.replication import ReplicationConnection, stream_failure
from walrelay.postgres.slot import Nudger
from walrelay.postgres.source import PostgresSource
from walrelay.wire.replication import (
    Committed,
    OtherFrame,
    Part,
    RolledBack,
    StreamCutter,
    WholeTransactions,
)

QUEUED_PIECES = 6
CONFIRM_SECONDS = 1.0
"""At least this often the server hears from us."""
IDLE_SECONDS = 1.0
"""How often at most an idle source moves the log's head."""
PING_SECONDS = 0.1
"""While waiting to be caught up the server is asked this often how far it is."""
WAIT_SECONDS = 0.25
FLOOD_BYTES = 512 * 1024
"""So much at once does not come from a stream that pauses between reads."""
_NOWHERE = Lsn(0)


@dataclass
class Course:
    """What all streams of a capture share: where from and where to, and how far it is."""

    source: PostgresSource
    slot: str
    storage: Storage
    settings: CaptureSettings
    stopping: threading.Event
    check: Callable[[], None]
    """Raises what has failed in the background."""
    target: Lsn | None = None
    """Where to end; None is never."""
    confirmed_lsn: Lsn = _NOWHERE
    """What the server may forget, as it was last told."""
    is_flowing: bool = False
    """Whether the connection has brought anything."""


class _Idle:
    """Nothing is in flight; the source has nothing for us up to here."""

    def __init__(self, lsn: Lsn) -> None:
        self.lsn = lsn


_Item = WholeTransactions | LargeTransaction | _Idle | None


class Stream:
    """One connection's stream: the receiver's loop, and the writer's thread."""

    def __init__(self, course: Course, replication: ReplicationConnection, writer: LogWriter, created_lsn: Lsn) -> None:
        self._course = course
        self._replication = replication
        self._created_lsn = created_lsn
        self._nudger = Nudger(course.source, course.stopping)
        self._readers = ReaderPositions(course.storage)
        self.writer = writer
        self.cutter = StreamCutter()
        self.open = OpenTransactions(_spill_directory(course), course.settings.memory_bytes)
        self._queue: queue.Queue[_Item] = queue.Queue(QUEUED_PIECES)
        self._queued_bytes = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="walrelay-writer", daemon=True)
        self._confirmed_at = self._advanced_at = self._pinged_at = 0.0
        self._readers_at = 0.0
        self._reader_positions: list[Lsn] = []

    @property
    def memory_bytes(self) -> int:
        return self.open.in_memory + self._queued_bytes + self.writer.segment.in_memory

    def run(self) -> None:
        """Receive until asked to stop, caught up, or something fails. What was received whole is published."""
        self._thread.start()
        clean = False
        try:
            self._receive()
            clean = True
        finally:
            self._end(clean)
        if self._error is not None:
            raise self._error

    def _receive(self) -> None:
        while not self._course.stopping.is_set() and self._error is None and not self._caught_up():
            self._heard(self._replication.receive(self.cutter, self._patience()))
            for piece in self.cutter.pieces():
                self._take(piece)
            self._course.check()
            self._offer_idle()
            self._confirm(reply_wanted=self.cutter.take_reply_wanted())

    def _heard(self, received: bool) -> None:
        if received:
            self._course.is_flowing = True

    def _patience(self) -> float:
        return PING_SECONDS if self._course.target is not None else WAIT_SECONDS

    def _take(self, piece: WholeTransactions | Part | Committed | RolledBack | OtherFrame) -> None:
        match piece:
            case WholeTransactions():
                self._put(piece)
            case Part():
                self.open.append(piece)
            case RolledBack():
                self.open.undo(piece.xid, piece.subxid)
            case Committed():
                content = self.open.take(piece.transaction.xid, streamed=piece.streamed)
                self._put(LargeTransaction(piece.transaction, content))
            case OtherFrame():
                error = stream_failure(piece, self._course.slot)
                if error is not None:
                    raise error

    def _put(self, item: _Item) -> None:
        """Hand over to the writer; while it is busy the server still hears from us."""
        while self._error is None:
            try:
                self._queue.put(item, timeout=CONFIRM_SECONDS)
            except queue.Full:
                self._confirm()
            else:
                return

    def _offer_idle(self) -> None:
        """When nothing at all is in flight, the position of a keepalive may become the log's head (SEMANTICS 3).

        What is queued comes before it: the writer takes that first, and moves the head only if nothing is left of it.
        To wait for an empty queue would be to wait for ever where keepalives come all the time (SEMANTICS 6).
        """
        position = Lsn(self.cutter.keepalive_end)
        in_flight = self.cutter.in_transaction or len(self.open) or not self.writer.idle
        now = time.monotonic()
        target = self._course.target
        eager = target is not None and position >= target > self.writer.durable_lsn
        if target is not None and position < target and not in_flight:
            self._nudger.still_waiting()
        if in_flight or position <= self.writer.durable_lsn or (now - self._advanced_at < IDLE_SECONDS and not eager):
            return
        self._advanced_at = now
        self._put(_Idle(position))

    def _caught_up(self) -> bool:
        target = self._course.target
        return target is not None and self.writer.durable_lsn >= target

    def _confirm(self, *, reply_wanted: bool = False) -> None:
        """Tell the server what it may forget, when that has changed, in time, or when it asks."""
        now = time.monotonic()
        position = self._acknowledged(now)
        # Asked, the server answers with a keepalive: an idle source moves the slot without waiting for its timeout.
        patience = PING_SECONDS if self._course.target is not None else IDLE_SECONDS
        ping = now - self._pinged_at >= patience
        due = now - self._confirmed_at >= CONFIRM_SECONDS
        moved = position > self._course.confirmed_lsn and now - self._confirmed_at >= CONFIRM_SECONDS / 10
        if not (reply_wanted or due or moved or ping):
            return
        hit("ack.before")
        received = Lsn(max(self.cutter.server_end if not self.cutter.in_transaction else 0, position))
        self._replication.confirm(received, position, reply=ping)
        hit("ack.after")
        self._course.confirmed_lsn = position
        self._confirmed_at = now
        if ping:
            self._pinged_at = now

    def _acknowledged(self, now: float) -> Lsn:
        ack = self._course.settings.ack or "log"
        if ack == "destination" and now - self._readers_at >= CONFIRM_SECONDS / 10:
            self._reader_positions = list(self._readers.positions().values())
            self._readers_at = now
        writer = self.writer
        return acknowledged(
            ack,
            created=self._created_lsn,
            # In this order: the writer goes on meanwhile, and an older head with a newer end of entries is safe.
            head=writer.durable_lsn,
            entries_end=writer.entries_end,
            readers=self._reader_positions,
        )

    def _end(self, clean: bool) -> None:
        """Publish what came whole, confirm it, and let go."""
        self.open.clear()
        handed_over = False
        while self._thread.is_alive():
            # The writer may be busy for long, and may fail meanwhile: it must have ended before anybody goes on.
            if not handed_over:
                with contextlib.suppress(queue.Full):
                    self._queue.put(None, timeout=CONFIRM_SECONDS)
                    handed_over = True
            else:
                self._thread.join(CONFIRM_SECONDS)
            try:
                if clean and self._thread.is_alive():
                    self._confirm()
            except ConnectionLostError:
                clean = False
        if clean and self._error is None:
            position = self._acknowledged(time.monotonic() + CONFIRM_SECONDS)
            self._replication.finish(position)
            self._course.confirmed_lsn = position

    def _write(self) -> None:
        """The writer's thread. In a flood segments grow; when it pauses, what there is becomes readable."""
        flood = False
        pause = self._course.settings.segment_age.total_seconds()
        try:
            while True:
                wait = None if self.writer.idle else max(0.0, min(self.writer.due_in(busy=flood), pause))
                try:
                    item = self._queue.get(timeout=wait)
                except queue.Empty:
                    self.writer.publish()
                    continue
                try:
                    match item:
                        case None:
                            self.writer.publish()
                            return
                        case _Idle():
                            self.writer.advance(item.lsn)
                        case _:
                            self.writer.take(item)
                            flood = isinstance(item, WholeTransactions) and item.bytes >= FLOOD_BYTES
                            if self.writer.due(busy=flood or not self._queue.empty()):
                                self.writer.publish()
                finally:
                    self._queue.task_done()
        except BaseException as error:  # handed to the receiver's thread, which raises it
            self._error = error


def _spill_directory(course: Course) -> Path:
    if course.settings.spill is not None:
        return course.settings.spill
    if isinstance(course.storage, LocalStorage):
        return Path(course.storage.location("spill"))
    return Path(tempfile.gettempdir())
