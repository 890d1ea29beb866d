"""The apply worker: brings the change log to the destination, batch by batch, and takes tables over as they get ready.

Spark's query calls `take` for every batch; between batches `tick` does what must not wait for the next one. Both hold
the same lock: at no LSN do two workers write a table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from walrelay.backoff import delays
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.destinations.base import Destination, WriteResult
from walrelay.errors import DestinationBusyError, StoppedError, WalrelayError
from walrelay.failpoints import hit
from walrelay.log.cuts import cuts
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.notice import Notice
from walrelay.model.phases import Catchup, Ready, SyncDone, SyncWait
from walrelay.model.progress import Apply
from walrelay.spark.secret_log import LazyAddress
from walrelay.stores.base import PipelineStore
from walrelay.workers.batch_counts import BatchCounts
from walrelay.workers.board import TableBoard
from walrelay.workers.event_writer import EventWriter, Flight

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=0.2), timedelta(seconds=30)


class ApplyWorker:
    """Applies the log. With a board only the tables that are ready take part; without one (mode `changes`) all do."""

    def __init__(
        self,
        log: LogReader,
        address: LazyAddress,
        destination: Destination,
        writer: EventWriter,
        store: PipelineStore,
        lineage: Lineage,
        *,
        reader: str,
        board: TableBoard | None,
        spark: Callable[[], SparkSession] | None,
        stopping: threading.Event,
        is_paused: Callable[[], bool],
        notify: Callable[[str], None],
        every: timedelta = timedelta(0),
    ) -> None:
        self.log = log
        self._address = address
        self._destination = destination
        self._writer = writer
        self._store = store
        self._lineage = lineage
        self._reader = reader
        self._board = board
        self._spark = spark
        self._stopping = stopping
        self._is_paused = is_paused
        self._notify = notify
        self._in_flight = max(1, destination.capabilities.in_flight)
        self._flying: deque[Flight] = deque()
        self._every = every.total_seconds()
        self._due_at = 0.0
        """By the monotonic clock: before that nothing is taken."""
        self._positions = ReaderPositions(log.storage)
        self._lock = threading.Lock() if board is None else board.writing
        self.rows = 0
        """Changes written by this worker."""
        self.batches = BatchCounts()
        self.moved_at = time.monotonic()
        """When a batch was last through, or failed and is tried again."""
        self.applied_at = 0.0
        self.position = self._resume()
        """Every table that takes part has everything up to here."""

    def take(self, to: Lsn) -> None:
        """A batch of Spark's: everything up to `to`. Nothing while paused; whoever ends the pause offers it again. Nor
        before the next batch is due: `tick` takes it then."""
        with self._lock:
            if time.monotonic() < self._due_at:
                return
            self._due_at = time.monotonic() + self._every
            for end in cuts(self.log, self._sent, to, self._destination.capabilities.batching.bytes):
                if self._stopping.is_set() or self._is_paused():
                    return
                self._apply(end)
                self._boundary()

    def hurry(self) -> None:
        """Somebody waits: take what comes as it comes."""
        self._every = 0.0

    def tick(self) -> None:
        """The boundary between two batches, also when no batch comes; and the batch that has become due."""
        if self._every and time.monotonic() >= self._due_at and (end := self.log.end()) > self.position:
            self.take(end)
        if self._lock.acquire(blocking=False):
            try:
                self._look_after_flights()
                self._boundary()
            finally:
                self._lock.release()

    def _look_after_flights(self) -> None:
        """Also when no batch comes: record what has become durable, and send again what has not."""
        if not self._flying:
            return
        to = self._sent
        try:
            self._land(room_for=0)
        except WalrelayError as error:
            self._abandon()
            self.batches = self.batches.failed()
            if self._board is None or not self._board.fail_named(error):
                if not error.retryable:
                    raise
                self._notify(
                    Notice.warning(
                        "batch is sent again", f"{error.message}; sent again", code=error.code, message=error.message
                    )
                )
            self._apply(to)

    def _resume(self) -> Lsn:
        """Where to go on: the destination's own word counts, then what was recorded, then the log's start."""
        progress = self._store.get_durable_progress(Apply())
        recorded = progress.lsn if progress is not None and progress.lineage == self._lineage else None
        if recorded is None:
            recorded = self._positions.positions().get(self._reader)
        start = recorded if recorded is not None else self.log.start()
        if self._board is None:
            own = self._destination.applied_lsn(None)
            start = own if own is not None else start
        else:
            start = min([*self._board.positions.values(), start]) if self._board.positions else start
        if self._positions.positions().get(self._reader) is None:
            self._positions.record(self._reader, start)
        return start

    def _apply(self, to: Lsn) -> None:
        """Bring everything up to `to` on its way, whatever it takes. What is durable is recorded, in order; where the
        destination lets several batches fly at a time, the last ones may be so only later."""
        if to <= self._sent:
            return
        for delay in delays(FIRST_DELAY, LONGEST_DELAY):
            try:
                self._land(room_for=1)
                self._send(self._board.ranges(to) if self._board is not None else None, to)
                self._land(room_for=0)
                return
            except StoppedError:
                self._abandon()
                return  # it comes again at the next start
            except WalrelayError as error:
                self._abandon()
                self.batches, self.moved_at = self.batches.failed(), time.monotonic()
                if self._board is not None and self._board.fail_named(error):
                    continue  # that table is out; the others go on without it
                if not (error.retryable or isinstance(error, DestinationBusyError)):
                    raise
                self._notify(
                    Notice.warning(
                        "batch is tried again",
                        f"{error.message}; next attempt in {delay.total_seconds():.1f} s",
                        code=error.code,
                        message=error.message,
                        after_seconds=delay.total_seconds(),
                    )
                )
                if self._stopping.wait(delay.total_seconds()):
                    return

    @property
    def _sent(self) -> Lsn:
        """Up to where all was given to the destination."""
        return self._flying[-1].to if self._flying else self.position

    def _send(self, ranges: tuple[TableRange, ...] | None, to: Lsn) -> None:
        if ranges == ():
            self._land(room_for=self._in_flight)
            self.position = to
            self._record()
            return
        for flight in self._flying:
            # What flies is not sent again; a table that has come since does not fly.
            flown = {one.table for one in flight.ranges or ()}
            ranges = ranges and tuple(
                replace(one, after=max(one.after, flight.to)) if one.table in flown else one for one in ranges
            )
        after = self._sent if ranges is None else min(one.after for one in ranges)
        hit("events.before_write")
        self._flying.append(self._writer.send(self._batch(after, to, ranges)))

    def _batch(self, after: Lsn, to: Lsn, ranges: tuple[TableRange, ...] | None) -> EventBatch:
        log = self._address
        return EventBatch(self.log, after, to, ranges, location=log.location, format=log.format, spark=self._spark)

    def _land(self, *, room_for: int) -> None:
        """Record what has become durable; wait until so many more may fly."""
        while self._flying and (self._flying[0].is_over or len(self._flying) > self._in_flight - room_for):
            flight = self._flying[0]
            self._took(flight.landed())
            self.batches = self.batches.written(time.monotonic() - flight.began_at)
            hit("events.after_write")
            self._flying.popleft()
            if self._board is not None:
                self._board.moved(flight.ranges or (), flight.to)
            self.position = flight.to
            self._record()

    def _abandon(self) -> None:
        """Nobody knows what became of what flies: it comes again. Not before all of it is over."""
        for flight in self._flying:
            if flight.result.later is not None:
                wait([flight.result.later])
        self._flying.clear()

    def _took(self, result: WriteResult) -> None:
        self.rows += result.rows
        self.applied_at = time.time()
        self.moved_at = time.monotonic()

    def _write(self, ranges: tuple[TableRange, ...], to: Lsn) -> None:
        """At once, beside what flies: tables that do not."""
        if not ranges:
            return
        hit("events.before_write")
        result = self._writer.write(self._batch(min(one.after for one in ranges), to, ranges))
        hit("events.after_write")
        self._took(result)

    def _record(self) -> None:
        hit("progress.before_record")
        self._store.update_durable_progress(Apply(), self._lineage, self.position)
        needed = self.position if self._board is None else self._board.oldest_needed(self.position)
        self._positions.record(self._reader, needed)
        hit("progress.after_record")

    def _boundary(self) -> None:
        """Hand-overs (SEMANTICS 10): tell who waits how far to catch up; take over who is done. All at once: with
        hundreds of tables, one commit for each would be felt."""
        board = self._board
        if board is None:
            return
        phases = board.phases()
        waiting = [table for table, phase in phases.items() if isinstance(phase, SyncWait)]
        if waiting:
            board.set_all(dict.fromkeys(waiting, Catchup(self.position)))
        done: dict[TableId, Lsn] = {}
        for table, phase in phases.items():
            match phase:
                case SyncDone(lsn) if lsn <= self.position:
                    done[table] = lsn
                case Ready() if board.positions.get(table, self.position) < self.position:
                    # It had failed, and may try again.
                    done[table] = board.positions[table]
                case _:
                    pass  # also one that is ahead, and waits until we are there
        if done:
            self._take_over(board, done)

    def _take_over(self, board: TableBoard, done: dict[TableId, Lsn]) -> None:
        """From each one's position to ours, then they go with the others."""
        behind = tuple(TableRange(table, lsn) for table, lsn in done.items() if lsn < self.position)
        try:
            self._write(behind, self.position)
        except WalrelayError as error:
            if len(done) > 1:
                for table, lsn in done.items():  # whoever fails, fails alone
                    self._take_over(board, {table: lsn})
            else:
                board.failed(next(iter(done)), error)
            return
        board.taken_over(done, self.position)
        for table in done:
            board.succeeded(table)
        self._record()
