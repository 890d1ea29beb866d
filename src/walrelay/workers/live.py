"""A pipeline that runs on: capture beside it, the apply worker's query, a sync worker for each table that needs one.

Start-up order as the seeds have it: connect, load what is remembered, start capture and the apply worker, discover
tables, start table sync workers. This is the loop; `discovery`, `sync_jobs`, `handover`, `apply` and `catalog_watch` do
the work. ARCHITECTURE.md says which thread does what, and in which order locks are taken.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from walrelay.changes.batch import TableRange
from walrelay.config.choices import OnSilentChange
from walrelay.errors import (
    DestinationBusyError,
    LineageError,
    PausedError,
    SourceError,
    StoppedError,
    WalrelayError,
)
from walrelay.log.readers import ReaderPositions
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.notice import Notice
from walrelay.model.phases import Errored, Ready
from walrelay.model.progress import Apply
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special
from walrelay.postgres.slot import Nudger
from walrelay.spark.change_query import LONG_SETTLE_SECONDS, SETTLE_SECONDS, ChangeQuery
from walrelay.stores.base import WHOLE_PIPELINE
from walrelay.stores.facts import HEAD
from walrelay.workers.apply import ApplyWorker
from walrelay.workers.board import RetryRule, TableBoard, held
from walrelay.workers.catalog_watch import CatalogWatch
from walrelay.workers.commands import CommandDesk
from walrelay.workers.discovery import Discovery
from walrelay.workers.event_writer import EventWriter
from walrelay.workers.fingerprint_book import FingerprintBook
from walrelay.workers.handover import TICK_SECONDS, Handovers
from walrelay.workers.parts import LiveParts
from walrelay.workers.quarantine import QuarantineRule
from walrelay.workers.report import ReportBook, TableReport
from walrelay.workers.status import PipelineStatus, known_lag, table_status
from walrelay.workers.sync_jobs import SyncJobs

DISCOVER_SECONDS = 2.0
SOON_SECONDS = 0.2
"""Until the next look at the catalog when something is known to have changed."""


class LiveRun:
    """From the first look at the tables to the clean end. `run` is for one thread, `status` for any."""

    def __init__(self, parts: LiveParts) -> None:
        self._parts = parts
        self._nudger = Nudger(parts.source, parts.stopping)
        self._reports = ReportBook(parts.listener)
        # In mode `changes` there is no copy to fall back on.
        rule = QuarantineRule(parts.store, parts.settings.on_bad_changes if parts.copies else "error")
        self._writer = EventWriter(
            parts.log, parts.destination, parts.store, rule, shaping=parts.shaping, staging=parts.staging
        )
        self._moved_at = time.monotonic()
        self._desk = CommandDesk(parts.store, parts.listener.notice)
        complete_from = self._check_lineage()
        self._take_reader_over()
        self._tables = _Tables(parts, self._reports, complete_from) if parts.copies else None
        self._worker = ApplyWorker(
            parts.log,
            parts.address,
            parts.destination,
            self._writer,
            parts.store,
            parts.lineage,
            reader=parts.reader,
            board=self._tables.board if self._tables is not None else None,
            spark=parts.spark,
            stopping=parts.stopping,
            is_paused=lambda: self._desk.is_paused,
            notify=parts.listener.notice,
            every=parts.every,
        )
        self._jobs: SyncJobs | None = None
        if self._tables is not None:
            handovers = Handovers(parts, self._tables.board, self._writer, self._nudger, lambda: self._worker.position)
            self._jobs = SyncJobs(parts, self._tables.board, self._reports, handovers, self._tables.fingerprints)

    @property
    def changes(self) -> int:
        return self._worker.rows

    @property
    def reports(self) -> tuple[TableReport, ...]:
        return self._reports.all()

    @property
    def treated(self) -> Counter[Special]:
        """Values of changes that the destination itself has treated by policy."""
        return self._writer.treated

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
            settle=SETTLE_SECONDS if target is None else LONG_SETTLE_SECONDS,
        )
        try:
            if target is not None:
                self._worker.hurry()
            # Spark takes seconds to start a query; copies need not wait for it.
            self._tick()
            query.start()
            while not parts.stopping.wait(TICK_SECONDS):
                query.check()
                parts.process.check()
                self._tick()
                if target is not None and self._reached(target):
                    return
        finally:
            parts.stopping.set()
            query.stop()
            if self._jobs is not None:
                self._jobs.stop()

    def head(self) -> Lsn:
        """Up to here the log holds all there is."""
        return self._parts.log.head()

    def status(self) -> PipelineStatus:
        parts, tables = self._parts, self._tables
        end, position, capture = parts.log.end(), self._worker.position, parts.process.status()
        lag, unknown_since = known_lag(parts.log, position, end, capture)
        return PipelineStatus(
            tables=() if tables is None else table_status(tables.board),
            position=position,
            log_end=end,
            changes=self._worker.rows,
            lag_seconds=lag,
            unknown_since=unknown_since,
            paused=self._desk.is_paused,
            capture=capture,
            batches=self._worker.batches,
            moved_at=max(self._moved_at, self._worker.moved_at),
        )

    def has_settled(self, lsn: Lsn) -> bool:
        """Whether all that was altered at the source before `lsn` is known, and was dealt with, but for tables in
        error."""
        if self._tables is None:
            return True
        watch, phases = self._tables.watch, self._tables.board.phases()
        errored = [table for table, phase in phases.items() if isinstance(phase, Errored)]
        return watch.seen_lsn >= lsn and watch.is_settled(errored)

    # -------------------------------------------------------------------------------------------------------- the loop

    def _check_lineage(self) -> Lsn:
        """What is remembered holds for another lineage too, where nothing can be missing between the two: a promoted
        server that has all the log holds (capture has seen to that), or a lost log whose slot has kept what the
        destination lacks. Returns from where on a table lacks nothing that a log made anew does not have."""
        store, now, log = self._parts.store, self._parts.lineage, self._parts.log
        progress = store.get_durable_progress(Apply())
        if progress is None or progress.lineage == now:
            return log.start()
        promoted = replace(progress.lineage, timeline=now.timeline) == now and progress.lsn <= log.head()
        idle_to = Lsn.parse(store.get_facts(HEAD).get(WHOLE_PIPELINE) or "0/0")
        relogged = replace(progress.lineage, created_lsn=now.created_lsn) == now and now.created_lsn <= max(
            progress.lsn, idle_to
        )
        if not promoted and not relogged:
            raise LineageError(f"what is remembered belongs to {progress.lineage}; the log is of {now}")
        store.delete_durable_progress(Apply())
        store.update_durable_progress(Apply(), now, max(progress.lsn, log.start()) if relogged else progress.lsn)
        how = f"the server is on timeline {now.timeline}" if promoted else "the log was made anew"
        said = f"{how}; nothing is missing, and the tables go on where they were"
        self._parts.listener.notice(Notice("going on in another lineage", said, timeline=now.timeline, message=how))
        return min(progress.lsn, log.start()) if relogged else log.start()

    def remember_head(self) -> None:
        """At a clean end: an idle source has nothing for us up to the log's head, which is where its slot stands."""
        log = self._parts.log
        if self._worker.position >= log.end():
            self._parts.store.store_fact(WHOLE_PIPELINE, HEAD, str(log.head()))

    def _take_reader_over(self) -> None:
        """Earlier versions called a reader as the pipeline, and two pipelines may have the same id."""
        parts = self._parts
        progress = parts.store.get_durable_progress(Apply())
        if progress is not None:
            ReaderPositions(parts.log.storage).take_over(parts.id, parts.reader, progress.lsn)

    def _tick(self) -> None:
        tables, jobs = self._tables, self._jobs
        self._moved_at = time.monotonic()
        was_paused = self._desk.is_paused
        self._look_at_desk()
        if self._desk.is_paused:
            return
        if was_paused:
            self._worker.take(self._parts.log.end())  # Spark's query has offered it already
        self._worker.tick()
        if tables is None or jobs is None:
            return
        if tables.board.due_retries():
            tables.discovery.place()
        patience = min(SOON_SECONDS, DISCOVER_SECONDS) if tables.watch.wants_look else DISCOVER_SECONDS
        if time.monotonic() - tables.discovery.looked_at >= patience:
            with suppress(SourceError):  # capture says it, and waits it out
                tables.discovery.look(jobs)
            self._parts.lock.check()
        self._judge(tables)
        jobs.start_due(tables.discovery.published, tables.discovery.sizes)

    def _look_at_desk(self) -> None:
        tables, jobs = self._tables, self._jobs
        if tables is None or jobs is None:
            self._desk.look(None, lambda _: False)
            return
        with held(tables.board.writing) as is_ours:
            if is_ours:
                self._desk.look(tables.board, jobs.is_busy)

    def _judge(self, tables: _Tables) -> None:
        """At a boundary between batches: what is to be done about tables that were altered without a message."""
        with held(tables.board.writing) as is_ours:
            if not is_ours:
                return
            try:
                tables.watch.judge(tables.board, self._show)
            except StoppedError:
                return
            except WalrelayError as error:
                # What passes by itself is tried again at the next boundary.
                passes = error.retryable or isinstance(error, DestinationBusyError)
                if not tables.board.fail_named(error) and not passes:
                    raise

    def _show(self, shape: SchemaVersion, position: Lsn) -> None:
        batch = self._parts.batch(position, position, (TableRange(shape.schema.id, position),))
        self._writer.write(replace(batch, shapes=(shape,)))

    def _reached(self, target: Lsn) -> bool:
        parts, tables = self._parts, self._tables
        if self._desk.is_paused:
            raise PausedError(f"the pipeline {parts.id} is paused and cannot catch up")
        if parts.log.head() < target:
            self._nudger.still_waiting()
            return False
        if self._worker.position < parts.log.end():
            return False
        if tables is None:
            return True
        if not self.has_settled(target):
            return False
        board = tables.board
        phases, positions, given_up = board.phases(), board.positions, board.given_up()
        if not tables.watch.has_heard(max(positions.values(), default=Lsn(0)), given_up):
            return False
        return all(
            isinstance(phase, Ready) and positions.get(table, Lsn(0)) >= self._worker.position
            for table, phase in phases.items()
            if table not in given_up
        )


class _Tables:
    """What a run that copies has besides: the board, who looks for tables, and who looks for silent changes."""

    def __init__(self, parts: LiveParts, reports: ReportBook, complete_from: Lsn) -> None:
        self._parts = parts
        self._reports = reports
        settings = parts.settings
        rule = RetryRule(settings.retries, settings.retry_delay, settings.late_retry_delay)
        self.board = TableBoard(parts.store, rule, self._failed, reports.recovered)
        self.fingerprints = FingerprintBook(parts.store)
        self.watch = CatalogWatch(
            parts.source.publication,
            self.fingerprints,
            parts.log,
            self._on_silent_change,
            parts.listener.notice,
        )
        self.discovery = Discovery(parts, self.board, self.watch, complete_from)
        self.discovery.look(None)
        self.board.resume_retries()

    def _on_silent_change(self, name: TableName) -> OnSilentChange:
        if not self._parts.destination.capabilities.materializes:
            return "ignore"
        return self._parts.shaping.options(name).on_silent_change or self._parts.settings.on_silent_change

    def _failed(self, name: TableName, error: WalrelayError, delay: float | None, given_up: bool) -> None:
        """Everybody is told at once; of what was given up, again at the end of the run (SEMANTICS 25)."""
        if given_up:
            self._reports.add(TableReport(name, 0, 0.0, error=error))
        else:
            self._parts.listener.table_retrying(name, error, delay or 0.0)
