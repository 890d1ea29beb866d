"""The table sync workers of a run: a thread for each table that has to be copied, a bounded number at a time."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from walrelay.errors import WalrelayError
from walrelay.model.names import TableId
from walrelay.model.phases import Errored, FinishedCopy, Ready, SyncDone
from walrelay.postgres.catalog import PublishedTable
from walrelay.spark.copy_job import cancel_copies
from walrelay.workers.board import TableBoard
from walrelay.workers.fingerprint_book import FingerprintBook
from walrelay.workers.handover import Handovers
from walrelay.workers.parts import RunParts
from walrelay.workers.progress import CopyProgress
from walrelay.workers.report import ReportBook, TableReport
from walrelay.workers.table_sync import CopyRun, copy_once

WAITING = 32
"""Tables that may wait for their hand-over, besides those that are being copied."""


class SyncJobs:
    """For the thread that runs the pipeline. Without `handovers` a table is done when it is copied."""

    def __init__(
        self,
        parts: RunParts,
        board: TableBoard,
        reports: ReportBook,
        handovers: Handovers | None,
        fingerprints: FingerprintBook | None = None,
    ) -> None:
        self._parts = parts
        self._board = board
        self._reports = reports
        self._handovers = handovers
        self._done = (Errored, Ready, SyncDone) if handovers is not None else (Errored, FinishedCopy)
        self._id = uuid.uuid4().hex[:8]
        self._run = partial(
            CopyRun,
            id=self._id,
            pipeline=parts.id,
            source=parts.source,
            destination=parts.destination,
            store=parts.store,
            settings=parts.settings,
            staging=parts.staging,
            listener=parts.listener,
            stopping=parts.stopping,
            reading=threading.BoundedSemaphore(parts.settings.max_tables),
            set_phase=board.set,
            fingerprints=fingerprints,
            follows=handovers is not None,
            shaping=parts.shaping,
        )
        # Twice as many as are read at a time: while some are read, others are loaded.
        self._copying = threading.BoundedSemaphore(2 * parts.settings.max_tables)
        self._pool = ThreadPoolExecutor(parts.settings.max_tables + WAITING, thread_name_prefix="walrelay-sync")
        self._jobs: dict[TableId, Future[None]] = {}
        self._attempts: dict[TableId, int] = {}
        self._progress: CopyProgress | None = None

    def is_busy(self, table: TableId) -> bool:
        """Whether a worker has the table."""
        job = self._jobs.get(table)
        return job is not None and not job.done()

    @property
    def any_busy(self) -> bool:
        return any(not job.done() for job in self._jobs.values())

    def start_due(self, published: Mapping[TableId, PublishedTable], sizes: Mapping[TableId, int]) -> None:
        """A worker for each table of the published ones that needs one."""
        # The largest first, so that the cores do not wait for a late giant.
        for table, phase in sorted(self._board.phases().items(), key=lambda item: -sizes.get(item[0], 0)):
            job = self._jobs.get(table)
            if job is not None and job.done():
                del self._jobs[table]
                job.result()  # what has no name of ours is a bug, and must not be tried for ever
            if table not in self._jobs and table in published and not isinstance(phase, self._done):
                attempt = self._attempts[table] = self._attempts.get(table, 0) + 1
                self._jobs[table] = self._pool.submit(self._sync, published[table], attempt)
        self._show_progress(bool(self._jobs))

    def stop(self) -> None:
        """Wait for all workers, which know that the pipeline stops."""
        self._show_progress(False)
        cancel_copies(self._parts.spark.started, self._id, self._jobs.values())
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _sync(self, table: PublishedTable, attempt: int) -> None:
        """Copy, and hand over. A failure is this table's alone."""
        parts, board = self._parts, self._board
        run = self._run(spark=parts.spark())  # a Spark that does not start is no failure of the table's
        begun = time.monotonic()
        try:
            with self._copying:
                if parts.stopping.is_set():
                    return
                begun = time.monotonic()
                if self._handovers is not None:
                    self._handovers.begin(table.id)
                parts.listener.table_started(table.name, attempt)
                copied = copy_once(run, table, attempt)
            if parts.store.get_table_mapping(table.id) != str(table.name):
                parts.store.store_table_mapping(table.id, str(table.name))
            if self._handovers is not None and not self._handovers.hand_over(table, copied):
                return
        except WalrelayError as error:
            if not parts.stopping.is_set():
                board.failed(table.id, error)
            return
        board.succeeded(table.id)
        self._reports.add(TableReport(table.name, copied.rows, time.monotonic() - begun, attempt, copied.treated))

    def _show_progress(self, copying: bool) -> None:
        """Tell how far copies are, while there are any: each look is a question to the source."""
        if copying and self._progress is None:
            board = self._board
            self._progress = CopyProgress(self._parts.source, self._id, lambda: board.names, self._parts.listener)
            self._progress.start()
        elif not copying and self._progress is not None:
            self._progress.stop()
            self._progress = None
