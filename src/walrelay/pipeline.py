"""The composition root: a source, a destination, a store, and what to do between them."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import TYPE_CHECKING, Literal, Self, get_args

from walrelay.config.settings import Ack, CaptureSettings, CopySettings, capture_settings, copy_settings
from walrelay.decode.warm import ensure_warm
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.staging import staging_area, sweep
from walrelay.errors import ConfigError, CopyFailedError, SparkLostError
from walrelay.log.capture import Until
from walrelay.log.identity import Lineage, read_lineage
from walrelay.log.reader import LogReader
from walrelay.log.storage import open_storage
from walrelay.model.phases import Init, Ready, SyncDone
from walrelay.postgres.catalog import PublishedTable, published_tables, storage_of
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import flushed_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.spark.failures import insist
from walrelay.spark.session import check_java, running_session, spark_session, warm_workers
from walrelay.stores.base import PipelineLock, PipelineStore
from walrelay.stores.memory import MemoryStore
from walrelay.workers.capture_process import CaptureProcess
from walrelay.workers.live import LiveParts, LiveRun
from walrelay.workers.progress import CopyProgress
from walrelay.workers.report import Listener, RunSummary, Silent, TableReport
from walrelay.workers.status import PipelineStatus
from walrelay.workers.table_sync import CopyRun, sync_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["copy", "changes", "both"]
POLL_SECONDS = 0.05
RETAIN_AGE = timedelta(days=7)
"""How long a pipeline's log keeps what the destination has: enough to replay into last week's backup of it."""


class Pipeline:
    """Brings the tables of the source's publication into the destination.

    Mode `both` copies every table and keeps it current, for ever. Mode `copy` copies every table once. Mode `changes`
    hands on every committed change from now on. Changes are landed in the change log at `log`, through the replication
    slot `slot`, and a streaming query applies the log. `id` names the pipeline in the store and as a reader of the log;
    the same id, store and log go on where they were.

    `spark` is the session to use; without one the active session, else a quiet local one (`spark_settings` override
    its defaults, see `walrelay.spark.session.LOCAL_SETTINGS`). `settings` says how to copy, `capture` how to capture.
    """

    def __init__(
        self,
        source: PostgresSource,
        destination: Destination,
        store: PipelineStore | None = None,
        mode: Mode = "copy",
        *,
        spark: SparkSession | None = None,
        settings: CopySettings | None = None,
        spark_settings: Mapping[str, str] | None = None,
        listener: Listener | None = None,
        id: str = "walrelay",
        log: str | Path | None = None,
        slot: str | None = None,
        capture: CaptureSettings | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"no such mode: {mode}", hint=f"This version has: {', '.join(get_args(Mode))}.")
        if not source.publication:
            raise ConfigError("the source names no publication", hint='PostgresSource(url, publication="…")')
        if mode != "copy" and not destination.takes_events:
            raise ConfigError(
                f"the destination {destination.name} takes no changes in this version",
                hint="Use mode copy with it.",
            )
        if mode != "copy" and log is None:
            raise ConfigError(f"mode {mode} needs a place for the change log", hint='Pipeline(…, log="DIR")')
        self.id = id
        self.log = log
        self.slot = slot or default_slot(source.publication)
        self.capture = capture or capture_settings()
        self.source = source
        self.destination = destination
        self.store: PipelineStore = store if store is not None else MemoryStore()
        self.mode = mode
        self.settings = settings or copy_settings()
        self._spark = spark
        self._spark_settings = spark_settings
        self._listener: Listener = listener or Silent()
        self._stopping = Event()
        self._live: LiveRun | None = None
        self._thread: threading.Thread | None = None
        self._outcome: RunSummary | None = None
        self._failure: BaseException | None = None

    def run(self, until: Until | None = None) -> RunSummary:
        """Do the mode's work and return what was done.

        Mode `copy`: all tables; when some failed the others are in place, and it raises `CopyFailedError` with the
        summary in `.summary`. Mode `changes`: until `shutdown()` or, with `until="caught-up"`, until every change that
        was committed when it started is in the destination. Mode `both`: the same, and every table is ready.
        """
        self._stopping.clear()
        return self._work(until)

    def _work(self, until: Until | None) -> RunSummary:
        return self._run_copy() if self.mode == "copy" else self._run_live(until)

    def start(self, until: Until | None = None) -> None:
        """Run in the background; `wait()` for its end."""
        if self._thread is not None:
            raise ConfigError("the pipeline was started already", hint="wait() for it, or make another one.")

        def work() -> None:
            try:
                self._outcome = self._work(until)
            except BaseException as error:  # raised by wait()
                self._failure = error

        # Here, not in the thread: a shutdown() that comes before it runs must count.
        self._stopping.clear()
        self._thread = threading.Thread(target=work, name="walrelay-pipeline")
        self._thread.start()

    def wait(self, timeout: float | None = None) -> RunSummary | None:
        """What a started pipeline has done, once it has ended (None before that); raises what ended it."""
        assert self._thread is not None, "start() comes first"
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self._outcome

    def status(self) -> PipelineStatus | None:
        """Where it stands; None before it runs. Not for mode `copy`, which tells its listener."""
        return self._live.status() if self._live is not None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        if self._thread is not None:
            self.wait()

    def _run_live(self, until: Until | None) -> RunSummary:
        assert self.log is not None
        begun = time.monotonic()
        if self._spark is None and running_session() is None:
            check_java()  # before anything is made that would have to be taken back
        ensure_warm(self._listener.notice)
        location = str(self.log)
        with self.store.acquire_pipeline_lock() as lock:
            self.store.load_table_replication_states()
            self.store.load_table_schemas()
            with connect(self.source, application="walrelay discovery") as connection:
                tables = published_tables(connection, self.source.publication)  # raises when there is none
                target = flushed_lsn(connection) if until is not None else None
            process = self._capture_process(location)
            self.destination.startup(self._context())
            try:
                process.start()
                spark = self._session()
                if self.mode == "both" and self._has_to_copy(tables):
                    warm_workers(spark)
                lineage = self._wait_for_log(process, location)
                if lineage is None:
                    return RunSummary((), time.monotonic() - begun)
                with self._staging() as staging:
                    live = LiveRun(self._live_parts(location, lineage, process, staging, lock))
                    self._live = live
                    live.run(target)
            finally:
                try:
                    process.stop()
                finally:
                    self.destination.shutdown()
        summary = RunSummary(tuple(live.reports), time.monotonic() - begun, changes=live.changes)
        if summary.failed and until is not None:
            raise failed(summary)
        return summary

    def _session(self) -> SparkSession:
        self._spark = spark_session(self._spark, self._spark_settings)
        return self._spark

    def _has_to_copy(self, tables: list[PublishedTable]) -> bool:
        phases = self.store.get_table_replication_states()
        return any(not isinstance(phases.get(table.id), SyncDone | Ready) for table in tables)

    def _context(self) -> DestinationContext:
        return DestinationContext(
            self.id,
            self.settings,
            spark=self._session,
            store=self.store,
            notify=self._listener.notice,
            others_wait=self.mode != "copy",
            stopping=self._stopping,
        )

    def _capture_process(self, location: str) -> CaptureProcess:
        ack: Ack = self.capture.ack or ("destination" if open_storage(location).local else "log")
        return CaptureProcess(
            self.source,
            slot=self.slot,
            log=location,
            settings=self.capture.model_copy(update={"ack": ack, "retain_age": self.capture.retain_age or RETAIN_AGE}),
            notify=self._listener.notice,
        )

    def _live_parts(
        self, location: str, lineage: Lineage, process: CaptureProcess, staging: Path, lock: PipelineLock
    ) -> LiveParts:
        assert self._spark is not None
        return LiveParts(
            id=self.id,
            source=self.source,
            destination=self.destination,
            store=self.store,
            settings=self.settings,
            spark=self._spark,
            log=LogReader(location),
            location=location,
            lineage=lineage,
            process=process,
            staging=staging,
            listener=self._listener,
            stopping=self._stopping,
            lock=lock,
            copies=self.mode == "both",
        )

    def _wait_for_log(self, process: CaptureProcess, location: str) -> Lineage | None:
        """Capture makes the log once it has its slot; None when stopped before that."""
        storage = open_storage(location)
        while (lineage := read_lineage(storage)) is None:
            if self._stopping.wait(POLL_SECONDS) or process.wait(0):
                return read_lineage(storage)
        return lineage

    def _run_copy(self) -> RunSummary:
        begun = time.monotonic()
        tables = self._discover()
        self.destination.startup(self._context())
        try:
            with self._staging() as staging:
                reports = self._copy(tables, staging)
        finally:
            self.destination.shutdown()
        summary = RunSummary(tuple(reports), time.monotonic() - begun)
        if summary.failed:
            raise failed(summary)
        return summary

    def shutdown(self) -> None:
        """Ask a run to stop. A copy: no retry and no further table begins, Spark's jobs are cancelled. Changes: what is
        being written is finished, and capture ends cleanly."""
        self._stopping.set()
        if self._spark is not None and self.mode == "copy":
            with suppress(SparkLostError):
                insist("cancelling copies", self._spark.sparkContext.cancelAllJobs)

    def _discover(self) -> list[PublishedTable]:
        """The tables, largest first, so that the cores do not wait for a late giant."""
        with connect(self.source, application="walrelay discovery") as connection:
            tables = published_tables(connection, self.source.publication)
            storage = storage_of(connection, [table.id for table in tables])
        tables.sort(key=lambda table: storage[table.id].bytes, reverse=True)
        self._listener.run_started({table.name: storage[table.id].rows_estimate for table in tables})
        self.store.load_table_replication_states()
        self.store.update_table_replication_states({table.id: Init() for table in tables})
        return tables

    def _copy(self, tables: list[PublishedTable], staging: Path) -> list[TableReport]:
        ensure_warm(self._listener.notice)
        run = CopyRun(
            id=uuid.uuid4().hex[:8],
            source=self.source,
            destination=self.destination,
            store=self.store,
            settings=self.settings,
            spark=self._session(),
            staging=staging,
            listener=self._listener,
            stopping=self._stopping,
            reading=BoundedSemaphore(self.settings.max_tables),
        )
        names = {table.id: table.name for table in tables}
        # Twice as many as are read at a time: while some are read, others are loaded.
        pool = ThreadPoolExecutor(2 * self.settings.max_tables, thread_name_prefix="walrelay-sync")
        with CopyProgress(self.source, run.id, names, self._listener):
            try:
                return list(pool.map(lambda table: sync_table(run, table), tables))
            except BaseException:
                self.shutdown()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """The directory where this run's copies land, for this run alone."""
        root = self.settings.staging or self.destination.staging_root()
        timeout, notify = self.settings.busy_timeout, self._listener.notice
        if root is None:
            parent = Path(tempfile.gettempdir()) / f"walrelay-{os.getuid()}"
            parent.mkdir(mode=0o700, exist_ok=True)
            sweep(parent)
            root, timeout = parent / f"run-{uuid.uuid4().hex[:8]}", timedelta(0)
        elif self.settings.staging is not None:
            root = root / ".walrelay-staging"
        with staging_area(root.absolute(), timeout=timeout, notify=notify) as area:
            yield area


def default_slot(publication: str) -> str:
    """A slot's name made from the publication's."""
    return "walrelay_" + re.sub(r"[^a-z0-9_]", "_", publication.lower())[:50]


def failed(summary: RunSummary) -> CopyFailedError:
    """The error for a run in which some tables failed; a single failure speaks for itself."""
    first = summary.failed[0]
    assert first.error is not None
    others = f" (and {len(summary.failed) - 1} more)" if len(summary.failed) > 1 else ""
    error = CopyFailedError(
        f"{first.name}{others} could not be copied: {first.error.message}",
        hint=first.error.hint,
        context={"code": first.error.code, "tables": [str(table.name) for table in summary.failed]},
    )
    error.summary = summary
    error.__cause__ = first.error
    return error
