"""Capture: reads a slot and lands whole transactions in the log, for ever, through every lost connection.

`admission.py` says whether server, slot and log belong together, `stream.py` reads one connection to its end; a thread
of its own does the housekeeping.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from walrelay.backoff import delay_of
from walrelay.capture.admission import admitted_lineage, check_slot, is_last_there
from walrelay.capture.housekeeping import Housekeeping
from walrelay.capture.relation_shapes import RelationShapes
from walrelay.capture.stream import Course, Stream
from walrelay.capture.writer import LogWriter
from walrelay.config.settings import SLOT_TIMEOUT, CaptureSettings, capture_settings
from walrelay.errors import (
    ConfigError,
    QueryError,
    RightsError,
    SlotInUseError,
    SourceError,
    WalrelayError,
)
from walrelay.log.lease import Lease, acquire
from walrelay.log.manifest import Entry, Manifest
from walrelay.log.status import STATUS, STREAMING, CaptureStatus, Counters, behind
from walrelay.log.storage import Storage, open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.notice import Notice
from walrelay.postgres.catalog import published_tables
from walrelay.postgres.connection import Connection, connect
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.slot import (
    check_slot_name,
    end_server_process,
    find_slot,
    flushed_lsn,
)
from walrelay.postgres.source import PostgresSource

log = logging.getLogger(__name__)

Until = Literal["caught-up"]


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
        self._counters = Counters()
        self._state, self._state_since = "starting", time.time()
        self._reconnects = 0
        self._last_error: WalrelayError | None = None
        self._stream: Stream | None = None
        self._housekeeping: Housekeeping | None = None
        self._course = Course(
            self.source, self.slot, self.storage, self.settings, threading.Event(), self._check_housekeeping
        )
        self._reader_pid = 0
        """The server process that we have read the slot through."""
        self._in_use_since: float | None = None

    def stop(self) -> None:
        """Ask for a clean end: what is committed and received is published, and the slot confirmed."""
        self._course.stopping.set()

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
        slot = self._housekeeping.slot if self._housekeeping is not None else None
        return CaptureStatus(
            state=self._state,
            slot=self.slot,
            pid=os.getpid(),
            at=time.time(),
            durable_lsn=str(durable),
            confirmed_lsn=str(self._course.confirmed_lsn),
            server_lsn=str(Lsn(server)),
            lag_bytes=behind(server, durable),
            lag_seconds=max(0.0, time.monotonic() - opened) if opened else 0.0,
            retained_wal_bytes=slot.retained_bytes if slot is not None else None,
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
            wal_status=slot.wal_status if slot is not None else None,
            safe_wal_bytes=slot.safe_wal_bytes if slot is not None else None,
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
            while not self._course.stopping.is_set():
                self._course.is_flowing = False
                try:
                    self._stream_once(lease, manifest, until)
                    break
                except WalrelayError as error:
                    if not error.retryable:
                        raise
                    self._end_earlier_self(error)
                    self._bound_wait_for_slot(error, limit)
                    self._last_error = error
                    attempt = 1 if self._course.is_flowing else attempt + 1
                    delay = delay_of(attempt, self.settings.retry_delay).total_seconds()
                    self._enter("waiting")
                    self._reconnects += 1
                    log.warning("capture connects again", extra={"code": error.code, "delay": delay})
                    self._notify(
                        Notice.warning(
                            "capture connects again",
                            f"{error.message}; next attempt in {delay:.1f} s",
                            code=error.code,
                            message=error.message,
                            after_seconds=delay,
                        )
                    )
                    self._course.stopping.wait(delay)
                self._check_housekeeping()
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
            said = f"{bad} changes cannot be taken as they are, up to {entry.end_lsn}; the log's quarantine has them"
            self._notify(Notice.warning("changes are in quarantine", said, changes=bad, up_to=str(entry.end_lsn)))

    def _check_housekeeping(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.check()

    def _stream_once(self, lease: Lease, manifest: Manifest, until: Until | None) -> None:
        """One connection, from its start to its end."""
        with connect(self.source, application="walrelay catalog", stopping=self._course.stopping) as catalog:
            published_tables(catalog, self.source.publication)  # raises when there is none
            with ReplicationConnection(self.source, stopping=self._course.stopping) as replication:
                lineage = admitted_lineage(self._course, catalog, replication, manifest, self._notify)
                if until is not None and self._course.target is None:
                    self._course.target = flushed_lsn(catalog)
                writer = self._writer(catalog, lease, manifest, lineage)
                found = find_slot(catalog, self.slot)
                check_slot(found, self.slot, replication.identify(), writer.durable_lsn)
                if not is_last_there(self._course, catalog, replication, manifest):
                    return
                self._sample_xids(catalog, lineage)
                self._reader_pid = replication.pid
                replication.start(
                    self.slot, self.source.publication, writer.durable_lsn, streaming=self.settings.streaming
                )
                stream = Stream(self._course, replication, writer, lineage.created_lsn)
                self._stream = stream
                self._enter(STREAMING)
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

    def _sample_xids(self, catalog: Connection, lineage: Lineage) -> None:
        assert self._housekeeping is not None
        try:
            self._housekeeping.xids.begin(catalog, self.slot, lineage.created_lsn)
        except (QueryError, RightsError) as error:
            # A server may forbid it. Copies need it only where transactions are very old, and say so themselves.
            log.warning("transaction numbers not sampled", extra={"code": error.code})

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
