"""A pipeline that runs on: capture beside it, the apply worker's query, a sync worker for each table that needs one.

Start-up order as the seeds have it: connect, load what is remembered, start capture and the apply worker, discover
tables, start table sync workers.
"""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.destinations.events import EventBatch, TableRange
from walrelay.errors import LineageError, PublicationEmptyError, SourceError, SparkLostError, WalrelayError
from walrelay.log.failures import LogGoneError
from walrelay.log.identity import Lineage
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import Errored, Init, NoRetry, Ready, SyncDone, SyncWait
from walrelay.model.progress import Apply
from walrelay.postgres.catalog import PublishedTable, published_tables, storage_of
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import Nudger
from walrelay.postgres.source import PostgresSource
from walrelay.spark.change_query import ChangeQuery
from walrelay.spark.failures import insist
from walrelay.stores.base import PipelineLock, PipelineStore
from walrelay.workers.apply import ApplyWorker
from walrelay.workers.board import TableBoard
from walrelay.workers.capture_process import CaptureProcess
from walrelay.workers.catch_up import CatchUps
from walrelay.workers.event_writer import EventWriter
from walrelay.workers.progress import CopyProgress
from walrelay.workers.report import Listener, TableReport
from walrelay.workers.status import PipelineStatus, TableStatus, table_status
from walrelay.workers.table_sync import CopyRun, copy_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_SECONDS = 0.05
WAITING = 32
"""Tables that may wait for their hand-over, besides those that are being copied."""
DISCOVER_SECONDS = 2.0


@dataclass(frozen=True)
class LiveParts:
    """What a running pipeline is made of."""

    id: str
    source: PostgresSource
    destination: Destination
    store: PipelineStore
    settings: CopySettings
    spark: SparkSession
    log: LogReader
    location: str
    lineage: Lineage
    process: CaptureProcess
    staging: Path
    listener: Listener
    stopping: threading.Event
    lock: PipelineLock
    copies: bool
    """Whether tables are copied first (mode `both`)."""


class LiveRun:
    """From the first look at the tables to the clean end."""

    def __init__(self, parts: LiveParts) -> None:
        self._parts = parts
        self._id = uuid.uuid4().hex[:8]
        self._nudger = Nudger(parts.source)
        writer = EventWriter(parts.log, parts.destination, parts.store)
        self._catch_ups = CatchUps(writer.write, parts.log, self._batch, parts.stopping)
        self._attempts: dict[TableId, int] = {}
        self._jobs: dict[TableId, Future[None]] = {}
        self._published: dict[TableId, PublishedTable] = {}
        self._bytes: dict[TableId, int] = {}
        self._progress: CopyProgress | None = None
        self._discovered_at = 0.0
        self.reports: list[TableReport] = []
        self._copying = threading.BoundedSemaphore(2 * parts.settings.max_tables)
        self._reading = threading.BoundedSemaphore(parts.settings.max_tables)
        self._pool = ThreadPoolExecutor(parts.settings.max_tables + WAITING, thread_name_prefix="walrelay-sync")
        self._board: TableBoard | None = None
        if parts.copies:
            self._board = TableBoard(
                parts.store,
                retries=parts.settings.retries,
                retry_delay=parts.settings.retry_delay,
                failed=self._table_failed,
            )
        self._check_lineage()
        if self._board is not None:
            self._discover(self._board)
            self._board.resume_retries()
            self.reports = self._given_up(self._board)
        self._worker = ApplyWorker(
            parts.log,
            parts.location,
            parts.destination,
            writer,
            parts.store,
            parts.lineage,
            reader=parts.id,
            board=self._board,
            spark=parts.spark,
            stopping=parts.stopping,
            notify=parts.listener.notice,
        )

    @property
    def changes(self) -> int:
        return self._worker.rows

    def run(self, target: Lsn | None) -> None:
        """Until stopped, or until everything up to `target` is in the destination."""
        parts = self._parts
        query = ChangeQuery(
            parts.spark,
            parts.location,
            self._worker.position,
            self._worker.take,
            name=f"walrelay {parts.id}",
            notify=parts.listener.notice,
        )
        try:
            # Spark takes seconds to start a query; copies need not wait for it.
            self._start_jobs()
            query.start()
            while not parts.stopping.wait(TICK_SECONDS):
                query.check()
                parts.process.check()
                self._tick()
                if target is not None and self._reached(target):
                    return
        finally:
            parts.stopping.set()
            self._show_progress(False)
            query.stop()
            if self._jobs and any(not job.done() for job in self._jobs.values()):
                with suppress(SparkLostError):
                    insist("cancelling copies", parts.spark.sparkContext.cancelAllJobs)
            self._pool.shutdown(wait=True, cancel_futures=True)

    def head(self) -> Lsn:
        """Up to here the log holds all there is."""
        return self._parts.log.head()

    def status(self) -> PipelineStatus:
        parts, board = self._parts, self._board
        end = parts.log.end()
        tables: tuple[TableStatus, ...] = ()
        if board is not None:
            phases = board.phases()
            tables = tuple(
                table_status(name, phases.get(table), board.positions.get(table))
                for table, name in sorted(board.names.items(), key=lambda item: str(item[1]))
            )
        return PipelineStatus(
            tables=tables,
            position=self._worker.position,
            log_end=end,
            changes=self._worker.rows,
            lag_seconds=self._lag(end),
            capture=parts.process.status(),
        )

    def _lag(self, end: Lsn) -> float:
        if self._worker.position >= end:
            return 0.0
        waiting = self._parts.log.entries(self._worker.position, end)
        return max(0.0, time.time() - waiting[0].created_at) if waiting else 0.0

    # ------------------------------------------------------------------------------------------------------- tables

    def _check_lineage(self) -> None:
        progress = self._parts.store.get_durable_progress(Apply())
        if progress is not None and progress.lineage != self._parts.lineage:
            raise LineageError(
                f"what is remembered belongs to {progress.lineage}; the log is of {self._parts.lineage}",
                hint="The slot was made anew. Begin with another --state directory: the tables are then copied again.",
            )

    def _tick(self) -> None:
        self._worker.tick()
        parts, board = self._parts, self._board
        if board is None:
            return
        if board.due_retries():
            self._place(board)
        if time.monotonic() - self._discovered_at >= DISCOVER_SECONDS:
            try:
                self._discover(board)
            except SourceError:
                self._discovered_at = time.monotonic()  # capture says it, and waits it out
            parts.lock.check()
        self._start_jobs()

    def _discover(self, board: TableBoard) -> None:
        """Tables that appeared in or left the publication, also while running."""
        parts = self._parts
        try:
            with connect(parts.source, application="walrelay discovery") as connection:
                if self._published:
                    # Who has a table for himself must not stop us; we look again soon.
                    connection.execute("SET lock_timeout = '500ms'")
                found = {table.id: table for table in published_tables(connection, parts.source.publication)}
                fresh = [table for table in found if table not in self._published]
                sizes = storage_of(connection, fresh) if fresh else {}
        except PublicationEmptyError:
            # Never taken as «all removed» (SEMANTICS 12).
            if not self._published:
                raise
            return
        finally:
            self._discovered_at = time.monotonic()
        known = parts.store.get_table_replication_states()
        self._published = found
        board.names.update({one.id: one.name for one in found.values()})
        if fresh:
            parts.listener.run_started({found[table].name: sizes[table].rows_estimate for table in fresh})
            self._bytes.update({table: sizes[table].bytes for table in fresh})
            parts.store.update_table_replication_states({table: Init() for table in fresh if table not in known})
            mapped = parts.store.get_table_mappings()
            parts.store.store_table_mappings({table: str(found[table].name) for table in fresh if table not in mapped})
            self._place(board)
        for table in [*known]:
            if table not in found and (table not in self._jobs or self._jobs[table].done()):
                self._forget(board, table)

    @staticmethod
    def _forget(board: TableBoard, table: TableId) -> None:
        """Not while it may be written to: whoever does would remember it again. Then at the next look."""
        if board.writing.acquire(timeout=TICK_SECONDS):
            try:
                board.forget(table)
            finally:
                board.writing.release()

    @staticmethod
    def _given_up(board: TableBoard) -> list[TableReport]:
        """The tables that failed in an earlier run and wait for a person."""
        return [
            TableReport(board.names[table], 0, 0.0, 0, error=WalrelayError(phase.reason, hint=phase.solution))
            for table, phase in board.phases().items()
            if isinstance(phase, Errored) and isinstance(phase.retry_policy, NoRetry)
        ]

    def _place(self, board: TableBoard) -> None:
        """Where the tables that need no copy go on: the destination's own word wins (DESIGN 6)."""
        parts = self._parts
        for table, phase in board.phases().items():
            if table in board.positions or not isinstance(phase, Ready | SyncDone):
                continue
            own = parts.destination.applied_lsn(table)
            progress = parts.store.get_durable_progress(Apply())
            if own is None and parts.destination.materializes:
                parts.listener.notice(f"the destination has lost {board.names[table]}; it is copied again")
                parts.store.update_table_replication_state(table, Init())
                continue
            remembered = phase.lsn if isinstance(phase, SyncDone) else progress.lsn if progress is not None else None
            position = own if own is not None else remembered
            if position is None or position < parts.log.start():
                gone = LogGoneError(
                    f"{board.names[table]} is at {position}, but the log begins at {parts.log.start()}",
                    context={"table": str(board.names[table])},
                )
                board.failed(table, gone)
                continue
            if position > parts.log.head():
                raise LineageError(
                    f"{board.names[table]} in the destination is at {position}, beyond the log's {parts.log.head()}",
                    hint="The destination belongs to another log. Begin with another destination or --state directory.",
                )
            if isinstance(phase, SyncDone) and position != phase.lsn:
                board.set(table, SyncDone(position))
            if isinstance(phase, Ready):
                board.positions[table] = position

    # --------------------------------------------------------------------------------------------------------- sync

    def _start_jobs(self) -> None:
        board = self._board
        if board is None:
            return
        # The largest first, so that the cores do not wait for a late giant.
        for table, phase in sorted(board.phases().items(), key=lambda item: -self._bytes.get(item[0], 0)):
            job = self._jobs.get(table)
            idle = job is None or job.done()
            if job is not None and job.done():
                del self._jobs[table]
                job.result()  # what has no name of ours is a bug, and must not be tried for ever
            if idle and table in self._published and not isinstance(phase, Ready | SyncDone | Errored):
                self._jobs[table] = self._pool.submit(self._sync, board, self._published[table])
        self._show_progress(bool(self._jobs))

    def _show_progress(self, copying: bool) -> None:
        """Tell how far copies are, while there are any: each look is a question to the source."""
        parts, board = self._parts, self._board
        if copying and self._progress is None and board is not None:
            self._progress = CopyProgress(parts.source, self._id, board.names, parts.listener)
            self._progress.start()
        elif not copying and self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _sync(self, board: TableBoard, table: PublishedTable) -> None:
        """Copy, catch up from the log, hand over. A failure is this table's alone."""
        parts = self._parts
        attempt = self._attempts[table.id] = self._attempts.get(table.id, 0) + 1
        begun = time.monotonic()
        try:
            with self._copying:
                if parts.stopping.is_set():
                    return
                begun = time.monotonic()
                since = board.copying_since[table.id] = self._worker.position
                parts.listener.table_started(table.name, attempt)
                copied = copy_once(self._copy_run(), table, attempt)
            if parts.store.get_table_mapping(table.id) != str(table.name):
                parts.store.store_table_mapping(table.id, str(table.name))
            board.set(table.id, SyncWait())
            target = board.wait_for_catchup(table.id, parts.stopping)
            if target is None or not self._wait_for_log(copied.seen_lsn):
                return
            reached = self._catch_ups.catch_up(table.id, copied.visible, target, since)
            if reached is None:
                return
            board.set(table.id, SyncDone(reached))
        except WalrelayError as error:
            if not parts.stopping.is_set():
                board.failed(table.id, error)
                if isinstance(board.phase(table.id), Errored):
                    self._report(TableReport(table.name, 0, time.monotonic() - begun, attempt, error=error))
            return
        board.succeeded(table.id)
        self._report(TableReport(table.name, copied.rows, time.monotonic() - begun, attempt, copied.treated))

    def _wait_for_log(self, lsn: Lsn) -> bool:
        """Whether the log came so far before the pipeline stops. Only when it holds all that the snapshot has seen does
        what comes after the catch-up belong to the table without a look at the snapshot."""
        while self._parts.log.head() < lsn:
            if self._parts.stopping.wait(TICK_SECONDS):
                return False
            self._nudger.still_waiting()
        return True

    def _batch(self, after: Lsn, to: Lsn, ranges: tuple[TableRange, ...]) -> EventBatch:
        parts = self._parts
        return EventBatch(parts.log, after, to, ranges, location=parts.location, spark=parts.spark)

    def _copy_run(self) -> CopyRun:
        parts = self._parts
        return CopyRun(
            id=self._id,
            source=parts.source,
            destination=parts.destination,
            store=parts.store,
            settings=parts.settings,
            spark=parts.spark,
            staging=parts.staging,
            listener=parts.listener,
            stopping=parts.stopping,
            reading=self._reading,
        )

    def _report(self, report: TableReport) -> None:
        self.reports = [one for one in self.reports if one.name != report.name] + [report]
        self._parts.listener.table_finished(report)

    def _table_failed(self, name: TableName, error: WalrelayError, delay: float | None) -> None:
        if delay is not None:
            self._parts.listener.table_retrying(name, error, delay)

    def _reached(self, target: Lsn) -> bool:
        parts, board = self._parts, self._board
        if parts.log.head() < target:
            self._nudger.still_waiting()
            return False
        if self._worker.position < parts.log.end():
            return False
        if board is None:
            return True
        return all(
            (isinstance(phase, Ready) and board.positions.get(table, Lsn(0)) >= self._worker.position)
            or (isinstance(phase, Errored) and isinstance(phase.retry_policy, NoRetry))
            for table, phase in board.phases().items()
        )
