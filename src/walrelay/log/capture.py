"""Capture: reads a slot and lands whole transactions in the log, for ever, through every lost connection.

The receiver (the caller's thread) reads the socket, cuts the stream and answers the server; the writer's thread decodes
and publishes; a third does the housekeeping. The queue between the first two is short: when the disk is slow, the
server waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from walrelay.backoff import delay_of
from walrelay.config.settings import SLOT_TIMEOUT, CaptureSettings, capture_settings
from walrelay.errors import (
    BEGIN_ANEW,
    ConfigError,
    ConnectionLostError,
    LineageError,
    QueryError,
    RightsError,
    SlotInUseError,
    SlotMissingError,
    SourceError,
    WalrelayError,
)
from walrelay.failpoints import hit
from walrelay.log.ack import acknowledged
from walrelay.log.housekeeping import Housekeeping
from walrelay.log.identity import Lineage, claim, read_lineage
from walrelay.log.lease import Lease, acquire
from walrelay.log.manifest import Entry, Manifest
from walrelay.log.readers import ReaderPositions
from walrelay.log.relation_shapes import RelationShapes
from walrelay.log.same_server import accept_timeline, check_not_put_back, read_held
from walrelay.log.spill import OpenTransactions
from walrelay.log.status import STATUS, STREAMING, CaptureStatus, Counters, behind
from walrelay.log.storage import LocalStorage, Storage, open_storage
from walrelay.log.tail import check_last, remember_publication, sent_again
from walrelay.log.writer import LargeTransaction, LogWriter
from walrelay.model.lsn import Lsn
from walrelay.postgres.catalog import publication_mark, published_tables
from walrelay.postgres.connection import Connection, connect
from walrelay.postgres.replication import ReplicationConnection, SystemIdentity, stream_failure
from walrelay.postgres.slot import (
    Nudger,
    Slot,
    check_position,
    check_slot_name,
    check_usable,
    create_slot,
    end_server_process,
    find_slot,
    flushed_lsn,
    in_use,
    wait_until_free,
)
from walrelay.postgres.slot_wait import naming_what_is_waited_for
from walrelay.postgres.source import PostgresSource
from walrelay.wire.replication import (
    Committed,
    OtherFrame,
    Part,
    RolledBack,
    StreamCutter,
    WholeTransactions,
)

log = logging.getLogger(__name__)

Until = Literal["caught-up"]
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


class _Idle:
    """Nothing is in flight; the source has nothing for us up to here."""

    def __init__(self, lsn: Lsn) -> None:
        self.lsn = lsn


_Item = WholeTransactions | LargeTransaction | _Idle | None


class Capture:
    """`Capture(source, slot="s", log="/var/lib/walrelay/shop").run()`; `stop()` from anywhere ends it cleanly."""

    def __init__(
        self,
        source: PostgresSource,
        *,
        slot: str,
        log: str | Path,
        settings: CaptureSettings | None = None,
        notify: Callable[[str], None] = lambda _message: None,
    ) -> None:
        if not source.publication:
            raise ConfigError("the source names no publication", hint='PostgresSource(url, publication="…")')
        self.slot = check_slot_name(slot)
        self.settings = settings or capture_settings()
        self.source = replace(source, stall_timeout=self.settings.stall_timeout)
        self.storage: Storage = open_storage(log)
        self._notify = notify
        self._stopping = threading.Event()
        self._counters = Counters()
        self._state, self._state_since = "starting", time.time()
        self._confirmed = Lsn(0)
        self._reconnects = 0
        self._last_error: WalrelayError | None = None
        self._stream: _Stream | None = None
        self._housekeeping: Housekeeping | None = None
        self._target: Lsn | None = None
        self._flowing = False
        self._reader_pid = 0
        """The server process that we have read the slot through."""
        self._in_use_since: float | None = None

    def stop(self) -> None:
        """Ask for a clean end: what is committed and received is published, and the slot confirmed."""
        self._stopping.set()

    def run(self, until: Until | None = None) -> None:
        """Capture until stopped, or until all that was committed when it started is in the log."""
        with acquire(self.storage, f"capture of slot {self.slot}") as lease:
            self.storage.sweep()
            self._run(lease, until)

    def status(self) -> CaptureStatus:
        """How it is going now."""
        stream = self._stream
        writer = stream.writer if stream is not None else None
        durable = writer.durable_lsn if writer is not None else Lsn(0)
        server = stream.cutter.server_end if stream is not None else 0
        transactions, rows = self._counters.rates()
        opened = writer.segment.opened_at if writer is not None else 0.0
        return CaptureStatus(
            state=self._state,
            slot=self.slot,
            pid=os.getpid(),
            at=time.time(),
            durable_lsn=str(durable),
            confirmed_lsn=str(self._confirmed),
            server_lsn=str(Lsn(server)),
            lag_bytes=behind(server, durable),
            lag_seconds=max(0.0, time.monotonic() - opened) if opened else 0.0,
            retained_wal_bytes=self._housekeeping.retained_bytes if self._housekeeping is not None else None,
            transactions=self._counters.transactions,
            rows=self._counters.rows,
            transactions_per_second=transactions,
            rows_per_second=rows,
            segments=self._counters.segments,
            last_segment_bytes=self._counters.last_segment_bytes,
            open_transactions=len(stream.open) if stream is not None else 0,
            open_transaction_bytes=stream.open.bytes if stream is not None else 0,
            large_transactions=stream.open.taken if stream is not None else 0,
            spilled_bytes=stream.open.spilled_bytes if stream is not None else 0,
            memory_bytes=stream.memory_bytes if stream is not None else 0,
            reconnects=self._reconnects,
            last_error=self._last_error.code if self._last_error is not None else None,
            special_values=writer.special_counts() if writer is not None else {},
            since=self._state_since,
        )

    def _run(self, lease: Lease, until: Until | None) -> None:
        manifest = Manifest(self.storage)
        attempt = 0
        limit = self.settings.slot_timeout or (SLOT_TIMEOUT if until is not None else None)
        housekeeping = Housekeeping(self.source, self.slot, self.storage, manifest, lease, self.settings)
        self._housekeeping = housekeeping
        housekeeping.every_second = self._report
        housekeeping.start()
        try:
            while not self._stopping.is_set():
                self._flowing = False
                try:
                    self._stream_once(lease, manifest, until)
                    break
                except WalrelayError as error:
                    if not error.retryable:
                        raise
                    self._end_earlier_self(error)
                    self._bound_wait_for_slot(error, limit)
                    self._last_error = error
                    attempt = 1 if self._flowing else attempt + 1
                    delay = delay_of(attempt, self.settings.retry_delay).total_seconds()
                    self._enter("waiting")
                    self._reconnects += 1
                    log.warning("capture connects again", extra={"code": error.code, "delay": delay})
                    self._notify(f"{error.message}; next attempt in {delay:.1f} s")
                    self._stopping.wait(delay)
                self.check_housekeeping()
        finally:
            housekeeping.stop()
            self._enter("stopped")
            self._report()

    def _end_earlier_self(self, error: WalrelayError) -> None:
        """Our own last connection may still have the slot: a server that nobody tells waits for it for a minute."""
        pid = error.context.get("pid")
        if isinstance(error, SlotInUseError) and pid and pid == self._reader_pid:
            with suppress(SourceError), connect(self.source, application="walrelay catalog") as connection:
                end_server_process(connection, pid)

    def _bound_wait_for_slot(self, error: WalrelayError, limit: timedelta | None) -> None:
        """Raise when the slot has been in use, at every attempt, for longer than it may be."""
        now = time.monotonic()
        if not isinstance(error, SlotInUseError):
            self._in_use_since = None
            return
        self._in_use_since = self._in_use_since or now
        if limit is not None and now - self._in_use_since >= limit.total_seconds():
            said = f"{error.message}, and did not become free within {limit.total_seconds():.0f} s"
            raise SlotInUseError(said, hint=error.hint, context=error.context) from error

    def _published(self, entry: Entry) -> None:
        self._counters.published(entry)
        bad = sum(file.rows for file in entry.files if file.kind == "quarantine")
        if bad:
            self._notify(
                f"{bad} changes cannot be taken as they are, up to {entry.end_lsn}; the log's quarantine has them"
            )

    def check_housekeeping(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.check()

    def _stream_once(self, lease: Lease, manifest: Manifest, until: Until | None) -> None:
        """One connection, from its start to its end."""
        with connect(self.source, application="walrelay catalog", stopping=self._stopping) as catalog:
            published_tables(catalog, self.source.publication)  # raises when there is none
            with ReplicationConnection(self.source, stopping=self._stopping) as replication:
                lineage = self._lineage(catalog, replication, manifest)
                if until is not None and self._target is None:
                    self._target = flushed_lsn(catalog)
                writer = self._writer(catalog, lease, manifest, lineage)
                found = find_slot(catalog, self.slot)
                self._check_slot(found, replication.identify(), writer.durable_lsn)
                if not self._is_last_there(catalog, replication, manifest):
                    return
                self._sample_xids(catalog, lineage)
                self._reader_pid = replication.pid
                replication.start(
                    self.slot, self.source.publication, writer.durable_lsn, streaming=self.settings.streaming
                )
                stream = _Stream(self, replication, writer, lineage)
                self._stream = stream
                stream.run()

    def _writer(self, catalog: Connection, lease: Lease, manifest: Manifest, lineage: Lineage) -> LogWriter:
        shapes = RelationShapes(catalog, self.source.publication, self.storage)

        def published(entry: Entry) -> None:
            self._published(entry)
            shapes.forget(entry.end_lsn)

        writer = LogWriter(
            self.storage,
            lease,
            manifest,
            created_lsn=lineage.created_lsn,
            settings=self.settings,
            describe=shapes.describe,
            told=shapes.told,
            published=published,
        )
        shapes.begin(writer.durable_lsn)
        return writer

    def _is_last_there(self, catalog: Connection, replication: ReplicationConnection, manifest: Manifest) -> bool:
        """Refuse a server that was put back and has gone on since, as far as it can be told; False when stopped."""
        slot = find_slot(catalog, self.slot)
        mark = publication_mark(catalog, self.source.publication)
        last = sent_again(self.storage, manifest, slot, mark) if slot is not None else None
        if slot is not None and last is not None:
            if not check_last(replication, slot, self.source.publication, last, self._stopping):
                return False
            replication.reopen()
            wait_until_free(catalog, self.slot)
        remember_publication(self.storage, mark)
        return True

    def _sample_xids(self, catalog: Connection, lineage: Lineage) -> None:
        assert self._housekeeping is not None
        try:
            self._housekeeping.xids.begin(catalog, self.slot, lineage.created_lsn)
        except (QueryError, RightsError) as error:
            # A server may forbid it. Copies need it only where transactions are very old, and say so themselves.
            log.warning("transaction numbers not sampled", extra={"code": error.code})

    def _lineage(self, catalog: Connection, replication: ReplicationConnection, manifest: Manifest) -> Lineage:
        """The log's lineage, made with a new slot when the log is new."""
        system = replication.identify()
        lineage = read_lineage(self.storage)
        if lineage is None:
            slot = find_slot(catalog, self.slot)
            if slot is None:
                hit("slot.before_create")
                self._notify(f"creating the replication slot {self.slot}")
                with naming_what_is_waited_for(
                    self.source, catalog.info.backend_pid, f"the replication slot {self.slot}", self._notify
                ):
                    slot = create_slot(catalog, self.slot, failover=self.settings.failover)
                hit("slot.after_create")
            check_usable(slot, system.database)
            if slot.confirmed_lsn is None:
                raise in_use(slot)  # it is being made: the server goes on when the client that asked for it has died
            lineage = Lineage(self.slot, system.system_identifier, system.timeline, slot.confirmed_lsn)
            claim(self.storage, lineage)
        if lineage.slot != self.slot:
            raise LineageError(
                f"the log belongs to the slot {lineage.slot}, not to {self.slot}",
                hint=f"Use --slot {lineage.slot}, or another --log directory.",
            )
        if lineage.system_identifier != system.system_identifier:
            raise LineageError(
                f"the log came from the server {lineage.system_identifier}; this is {system.system_identifier}",
                hint=f"Connect to the server the log came from. Where that is gone: {BEGIN_ANEW}",
            )
        if lineage.timeline != system.timeline:
            if self.settings.accept_timeline != system.timeline:
                raise LineageError(
                    f"the server is on timeline {system.timeline} now; the log came from timeline {lineage.timeline}",
                    hint="After a promotion go on only if the slot was synchronised to this server: then run again with"
                    f" --accept-timeline {system.timeline}. Else: {BEGIN_ANEW}",
                )
            held = read_held(self.storage, manifest, lineage)
            lineage = accept_timeline(self.storage, replication, lineage, held, system.timeline)
        check_not_put_back(catalog, read_held(self.storage, manifest, lineage))
        return lineage

    def _check_slot(self, slot: Slot | None, system: SystemIdentity, held: Lsn) -> None:
        if slot is None:
            raise SlotMissingError(f"the replication slot {self.slot} is gone")
        check_usable(slot, system.database)
        if slot.active_pid is not None:
            raise in_use(slot)
        check_position(slot, held)

    def _enter(self, state: str) -> None:
        if state != self._state:
            self._state, self._state_since = state, time.time()

    def _report(self) -> None:
        """Once a second: the status for those who look from outside."""
        status = self.status()
        try:
            self.storage.put(STATUS, status.to_json())
        except WalrelayError as error:
            log.warning("status not written", extra={"code": error.code})
        log.debug("capture", extra={"status": status})


class _Stream:
    """One connection's stream: the receiver's loop, and the writer's thread."""

    def __init__(
        self, capture: Capture, replication: ReplicationConnection, writer: LogWriter, lineage: Lineage
    ) -> None:
        self._capture = capture
        self._replication = replication
        self._lineage = lineage
        self._nudger = Nudger(capture.source, capture._stopping)
        self._readers = ReaderPositions(capture.storage)
        self.writer = writer
        self.cutter = StreamCutter()
        self.open = OpenTransactions(_spill_directory(capture), capture.settings.memory_bytes)
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
        self._capture._enter(STREAMING)
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
        while not self._capture._stopping.is_set() and self._error is None and not self._caught_up():
            self._heard(self._replication.receive(self.cutter, self._patience()))
            for piece in self.cutter.pieces():
                self._take(piece)
            self._capture.check_housekeeping()
            self._offer_idle()
            self._confirm(reply_wanted=self.cutter.take_reply_wanted())

    def _heard(self, received: bool) -> None:
        if received:
            self._capture._flowing = True

    def _patience(self) -> float:
        return PING_SECONDS if self._capture._target is not None else WAIT_SECONDS

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
                error = stream_failure(piece, self._capture.slot)
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
        target = self._capture._target
        eager = target is not None and position >= target > self.writer.durable_lsn
        if target is not None and position < target and not in_flight:
            self._nudger.still_waiting()
        if in_flight or position <= self.writer.durable_lsn or (now - self._advanced_at < IDLE_SECONDS and not eager):
            return
        self._advanced_at = now
        self._put(_Idle(position))

    def _caught_up(self) -> bool:
        target = self._capture._target
        return target is not None and self.writer.durable_lsn >= target

    def _confirm(self, *, reply_wanted: bool = False) -> None:
        """Tell the server what it may forget, when that has changed, in time, or when it asks."""
        now = time.monotonic()
        position = self._acknowledged(now)
        # Asked, the server answers with a keepalive: an idle source moves the slot without waiting for its timeout.
        patience = PING_SECONDS if self._capture._target is not None else IDLE_SECONDS
        ping = now - self._pinged_at >= patience
        due = now - self._confirmed_at >= CONFIRM_SECONDS
        moved = position > self._capture._confirmed and now - self._confirmed_at >= CONFIRM_SECONDS / 10
        if not (reply_wanted or due or moved or ping):
            return
        hit("ack.before")
        received = Lsn(max(self.cutter.server_end if not self.cutter.in_transaction else 0, position))
        self._replication.confirm(received, position, reply=ping)
        hit("ack.after")
        self._capture._confirmed = position
        self._confirmed_at = now
        if ping:
            self._pinged_at = now

    def _acknowledged(self, now: float) -> Lsn:
        ack = self._capture.settings.ack or "log"
        if ack == "destination" and now - self._readers_at >= CONFIRM_SECONDS / 10:
            self._reader_positions = list(self._readers.positions().values())
            self._readers_at = now
        writer = self.writer
        return acknowledged(
            ack,
            created=self._lineage.created_lsn,
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
            self._capture._confirmed = position

    def _write(self) -> None:
        """The writer's thread. In a flood segments grow; when it pauses, what there is becomes readable."""
        flood = False
        pause = self._capture.settings.segment_age.total_seconds()
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


def _spill_directory(capture: Capture) -> Path:
    if capture.settings.spill is not None:
        return capture.settings.spill
    if isinstance(capture.storage, LocalStorage):
        return Path(capture.storage.location("spill"))
    return Path(tempfile.gettempdir())
