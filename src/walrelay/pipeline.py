"""The composition root: a source, a destination, a store, and what to do between them."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal, Self, get_args

from walrelay.capture.capture import Until
from walrelay.config.settings import (
    CaptureSettings,
    CopySettings,
    capture_settings,
    copy_settings,
)
from walrelay.destinations.base import Destination, DestinationContext, Identity
from walrelay.destinations.staging import staging_area, sweep_leftovers, temporary_root
from walrelay.errors import (
    ConfigError,
    CopyFailedError,
    KeptCurrentError,
    SparkError,
    StoppedError,
    WalrelayError,
)
from walrelay.log.failures import LogNotFoundError
from walrelay.log.identity import read_lineage
from walrelay.log.reader import LogReader
from walrelay.log.storage import open_storage
from walrelay.log.view import LogView
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import Ready, SyncDone
from walrelay.model.progress import Apply
from walrelay.model.special import Special
from walrelay.model.table_options import TableOptions
from walrelay.postgres.catalog import PublishedTable
from walrelay.postgres.source import PostgresSource
from walrelay.shaping.agreement import agree, check_tables, recognise
from walrelay.shaping.function_plan import RowFunction, Transform
from walrelay.shaping.shaping import Shaping
from walrelay.sources.base import Contents, FeedOrder
from walrelay.sources.feed import Feed
from walrelay.sources.postgres import PublishedDatabase
from walrelay.spark.first_use import set_up
from walrelay.spark.needs import check_session, check_version, settings_for
from walrelay.spark.on_demand import SparkOnDemand
from walrelay.spark.secret_log import LazyAddress
from walrelay.spark.session import check_java, running_session, spark_session, warm_when_started
from walrelay.stores.base import WHOLE_PIPELINE, PipelineLock, PipelineStore
from walrelay.stores.facts import DESTINATION, ENDED
from walrelay.stores.failures import StoreError
from walrelay.stores.memory import MemoryStore
from walrelay.stores.names import unique_name
from walrelay.verify.report import VerifyReport
from walrelay.verify.run import VerifyParts, verify
from walrelay.workers.begin_anew import begin_anew as begin_pipeline_anew
from walrelay.workers.copy_loop import CopyLoop
from walrelay.workers.live import LiveRun
from walrelay.workers.parts import LiveParts, RunParts
from walrelay.workers.report import Listener, RunSummary, Silent
from walrelay.workers.status import PipelineStatus
from walrelay.workers.treated import counted
from walrelay.workers.wishes import pause, resume, resync, rollback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["copy", "changes", "both"]
POLL_SECONDS = 0.05
ANEW_SECONDS = 60.0
"""A run that was begun anew and has lasted as long may be begun anew again."""


class Pipeline:
    """Brings the tables of the source's publication into the destination.

    Mode `both` copies every table and keeps it current, for ever. Mode `copy` copies every table once. Mode `changes`
    hands on every committed change from now on. Changes are landed in the change log at `log`, through the replication
    slot `slot` (by default one of its own), and a streaming query applies the log. `id` names the pipeline in the store
    and as a reader of the log; the same id, store and log go on where they were.

    `spark` is the session to use; without one the active session, else a quiet local one (`spark_settings` override
    its defaults, see `walrelay.spark.session.LOCAL_SETTINGS`). `settings` says how to copy, `capture` how to capture.
    `migrate_source` has the DDL trigger installed on the source when the pipeline starts (docs/how-to/follow-ddl.md).
    `begin_anew` makes a new slot, a new log and new copies when the old ones turn out to be lost, instead of raising
    the error that says so; as long as all is well it does nothing. `follow` runs no capture: somebody else's writes the
    log, which any number of pipelines may follow, each at its own pace. `tables` says what is done to tables, by
    pattern, and `transform` gives functions on the rows of tables, by name (docs/how-to/shape-tables.md).
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
        migrate_source: bool = False,
        begin_anew: bool = False,
        follow: bool = False,
        tables: Mapping[str, TableOptions] | None = None,
        transform: Mapping[str, RowFunction | Transform] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"no such mode: {mode}", hint=f"This version has: {', '.join(get_args(Mode))}.")
        if not source.publication:
            raise ConfigError("the source names no publication", hint='PostgresSource(url, publication="…")')
        if mode != "copy" and not destination.capabilities.takes_changes:
            raise ConfigError(
                f"the destination {destination.name} takes no changes in this version",
                hint="Use mode copy with it.",
            )
        if mode != "copy" and log is None:
            raise ConfigError(f"mode {mode} needs a place for the change log", hint='Pipeline(…, log="DIR")')
        if mode == "copy" and migrate_source:
            raise ConfigError(
                "mode copy follows no DDL",
                hint="Leave out migrate_source (--migrate-source), or use mode both or changes.",
            )
        if follow and (mode == "copy" or begin_anew):
            raise ConfigError(
                "a pipeline that follows a log of somebody else's neither makes one anew nor does without",
                hint="Leave out follow (--follow), or use mode both or changes, without begin_anew.",
            )
        self.id = id
        self.log = log
        self.follow = follow
        self.slot = slot
        self.capture = capture or capture_settings()
        self.destination = destination
        self.store: PipelineStore = store if store is not None else MemoryStore()
        self.mode = mode
        self.settings = settings or copy_settings()
        self.source = replace(source, stall_timeout=self.settings.stall_timeout)
        self._source = PublishedDatabase(self.source, self.slot, self.capture, follow, migrate_source)
        self.begin_anew = begin_anew
        self._shaping = Shaping(tables, transform, spark=self._session, special_values=self.settings.special_values)
        self._given = spark
        self._spark_settings = spark_settings
        self.listener: Listener = listener or Silent()
        self._stopping = Event()
        self._asked = False
        """Whether somebody wants it to stop; not when it stops by itself."""
        self._spark = SparkOnDemand(self._start_spark, self._stopping)
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
        self._begin()
        return self._work(until)

    def _begin(self) -> None:
        self._stopping.clear()
        self._asked = False
        # In the thread of whoever runs it: the active session is a matter of the thread.
        self._given = self._given or running_session()
        if self._given is None:
            check_version(self.destination.capabilities.spark, self._spark_settings or {}, self.destination.name)
        self._spark = SparkOnDemand(self._start_spark, self._stopping)

    def _work(self, until: Until | None) -> RunSummary:
        begun = time.monotonic()
        sweep_leftovers()
        try:
            return self._run_copy() if self.mode == "copy" else self._remembering_its_end(until)
        except (SparkError, StoppedError):
            # Who asks for an end may end Spark as well: a service manager signals every process of a service.
            if not self._asked:
                raise
            live = self._live
            reports, changes = ((), 0) if live is None else (live.reports, live.changes)
            return RunSummary(reports, time.monotonic() - begun, changes=changes)

    def _remembering_its_end(self, until: Until | None) -> RunSummary:
        """What ends a pipeline that should run on is kept for whoever asks later why it does not."""
        try:
            return self._beginning_anew(until)
        except CopyFailedError:
            raise  # each table's own failure is remembered
        except WalrelayError as error:
            if not self._asked and not isinstance(error, StoreError):
                body = {"code": error.code, "message": error.message, "hint": error.hint, "at": time.time()}
                with suppress(StoreError):
                    self.store.store_fact(WHOLE_PIPELINE, ENDED, body)
            raise

    def _feed_order(self, until: Until | None) -> FeedOrder:
        return FeedOrder(
            str(self.log), self.settings, until is not None, self.listener.notice, unique_name(self.store, self.id)
        )

    def _beginning_anew(self, until: Until | None) -> RunSummary:
        """When that was asked for and is the way back; not for ever where each beginning fails at once."""
        is_anew = False
        while True:
            begun = time.monotonic()
            try:
                return self._run_live(until)
            except WalrelayError as error:
                if not (self.begin_anew and error.begins_anew) or self._asked:
                    raise
                if is_anew and time.monotonic() - begun < ANEW_SECONDS:
                    raise
                begin_pipeline_anew(
                    error,
                    source=self.source,
                    slot=self._source.slot_of(self._feed_order(until)),
                    log=str(self.log),
                    store=self.store,
                    notify=self.listener.notice,
                )
            is_anew = True
            self._stopping.clear()

    def resync(self, *tables: str) -> None:
        """Have these tables (all without names) copied again: now while it runs, else at the next start."""
        resync(self.store, tables)

    def rollback(self, table: str) -> None:
        """Have the table go one phase back: of one in error, what it did before is tried again."""
        rollback(self.store, table)

    def pause(self) -> None:
        """Write nothing more to the destination until `resume()`; capture goes on. Also holds after a restart."""
        pause(self.store)

    def resume(self) -> None:
        """End a pause."""
        resume(self.store)

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
        self._begin()
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
        """Where it stands; None before it runs, and while it has no log. Not for mode `copy`, which tells its
        listener."""
        try:
            return self._live.status() if self._live is not None else None
        except LogNotFoundError:
            return None  # set aside, for one that is begun anew

    def verify(self, tables: Collection[str] | None = None, repair: bool = False) -> VerifyReport:
        """Compare source and destination, table by table, exactly, while both run or when neither does; with `repair`
        bring the rows that differ (docs/how-to/verify.md). Not for mode `copy`, which keeps no log."""
        if self.log is None:
            raise ConfigError("mode copy keeps no change log to compare by", hint="Use mode both.")
        parts = VerifyParts(
            self.id,
            self.source,
            self.destination,
            self.store,
            str(self.log),
            self.settings,
            arrives=self._shaping.includes_name,
        )
        return verify(parts, tables, repair=repair)

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
        if self._given is None:
            check_java()  # before anything is made that would have to be taken back
        self._source.prepare(self.listener.notice)
        set_up(self.listener.notice, own_session=self._given is None)
        location = str(self.log)
        with self.store.acquire_pipeline_lock() as lock:
            self.store.load_table_replication_states()
            self.store.load_table_schemas()
            self.store.store_fact(WHOLE_PIPELINE, ENDED, None)
            found = self._contents()  # raises when there is nothing
            ends = until is not None
            process = self._source.feed(self._feed_order(until))
            before = self._treated(location)
            self.destination.startup(self._context(found))
            try:
                self._remember_destination()
                process.start()
                if self.mode == "both" and self._has_to_copy(found.tables):
                    self._spark.begin().add_done_callback(warm_when_started)
                lineage = self._wait_for_log(process, location)
                if lineage is None:
                    return RunSummary((), time.monotonic() - begun)
                with self._staging() as staging:
                    live = LiveRun(self._live_parts(location, lineage, process, staging, lock, found.head))
                    self._live = live
                    live.run(found.head if ends else None)
            finally:
                try:
                    process.stop()
                finally:
                    self.destination.shutdown()
            live.remember_head()
        summary = RunSummary(
            live.reports,
            time.monotonic() - begun,
            changes=live.changes,
            treated_changes=self._treated(location) - before + live.treated,
        )
        if summary.failed and until is not None:
            raise failed(summary)
        return summary

    @staticmethod
    def _treated(location: str) -> Counter[Special]:
        """What capture has treated by policy since the log began."""
        storage = open_storage(location)
        return counted(LogView(storage).treated()) if read_lineage(storage) is not None else Counter()

    def _session(self) -> SparkSession:
        """Of this run: each has another."""
        return self._spark()

    def _start_spark(self) -> SparkSession:
        needs = self.destination.capabilities.spark
        session = spark_session(self._given, settings_for(needs, self._spark_settings or {}))
        check_session(needs, session, self.destination.name)
        return session

    def _has_to_copy(self, tables: Iterable[PublishedTable]) -> bool:
        phases = self.store.get_table_replication_states()
        return any(not isinstance(phases.get(table.id), SyncDone | Ready) for table in tables)

    def _remember_destination(self) -> None:
        """What is remembered of the tables is true of this destination alone."""
        ask: Callable[[], Identity | None] = getattr(self.destination, "identity", lambda: None)
        identity = ask()
        if identity is not None:
            self.store.store_fact(WHOLE_PIPELINE, DESTINATION, asdict(identity))

    def _remembered_destination(self) -> Identity | None:
        found = self.store.get_facts(DESTINATION).get(WHOLE_PIPELINE)
        return None if found is None else Identity(**found)

    def _contents(self, *, sizes: bool = False) -> Contents:
        """What the source has of the tables that are wanted, whose options can be honoured."""
        found = self._source.contents(self._stopping, sizes=sizes)
        tables = tuple(table for table in found.tables if self._shaping.includes_name(table.name))
        names = {table.id: table.name for table in tables}
        recognise(self.store, self._shaping, names)
        check_tables(self._shaping, self.source, tables, self.settings.unknown_types, self._stopping)
        agree(self.store, self._shaping, names, self.listener.notice)
        return replace(found, tables=tables)

    def _context(self, found: Contents) -> DestinationContext:
        runs_on = self.mode != "copy"
        return DestinationContext(
            self.id,
            self.settings,
            spark=self._spark,
            store=self.store,
            notify=self.listener.notice,
            others_wait=runs_on,
            stopping=self._stopping,
            mode=self.mode,
            source_id=found.identity,
            source_name=self._source.location,
            pipeline_name=unique_name(self.store, self.id) if runs_on else None,
            tables={table.id: self._shaping.shaped_name(table.name) for table in found.tables},
            names=self._names,
            enum_labels=lambda types: self._source.enum_labels(types, self._stopping),
            expected=self._remembered_destination() if runs_on else None,
        )

    def _names(self, tables: Collection[TableId]) -> dict[TableId, TableName] | None:
        """What the destination is to call these tables now."""
        found = self._source.names(tables, self._stopping)
        return None if found is None else {table: self._shaping.shaped_name(name) for table, name in found.items()}

    def _live_parts(
        self,
        location: str,
        lineage: Lineage,
        process: Feed,
        staging: Path,
        lock: PipelineLock,
        source_lsn: Lsn,
    ) -> LiveParts:
        return LiveParts(
            **self._run_parts(staging).__dict__,
            log=LogReader(location),
            location=location,
            address=LazyAddress(self._spark, location),
            lineage=lineage,
            process=process,
            lock=lock,
            source_lsn=source_lsn,
            copies=self.mode == "both",
            reader=unique_name(self.store, self.id),
        )

    def _run_parts(self, staging: Path) -> RunParts:
        return RunParts(
            id=self.id,
            source=self.source,
            destination=self.destination,
            store=self.store,
            settings=self.settings,
            spark=self._spark,
            staging=staging,
            listener=self.listener,
            stopping=self._stopping,
            shaping=self._shaping,
        )

    def _wait_for_log(self, process: Feed, location: str) -> Lineage | None:
        """Capture makes the log once it has its slot; None when stopped before that."""
        storage = open_storage(location)
        while (lineage := read_lineage(storage)) is None:
            if self._stopping.wait(POLL_SECONDS) or process.wait(0):
                return read_lineage(storage)
        return lineage

    def _run_copy(self) -> RunSummary:
        begun = time.monotonic()
        with self.store.acquire_pipeline_lock():
            self._refuse_to_forget()
            found = self._contents(sizes=True)
            storage = found.storage
            self.listener.run_started({table.name: storage[table.id].rows_estimate for table in found.tables})
            self.destination.startup(self._context(found))
            try:
                set_up(self.listener.notice, own_session=self._given is None)
                with self._staging() as staging:
                    reports = CopyLoop(self._run_parts(staging), found.tables, storage).run()
            finally:
                self.destination.shutdown()
        summary = RunSummary(reports, time.monotonic() - begun)
        if summary.failed:
            raise failed(summary)
        return summary

    def _refuse_to_forget(self) -> None:
        """A copy begins every table anew and brings no changes: not with the state of who keeps tables current."""
        self.store.load_table_replication_states()
        phases = self.store.get_table_replication_states().values()
        kept = any(isinstance(phase, SyncDone | Ready) for phase in phases)
        if kept or self.store.get_durable_progress(Apply()) is not None:
            raise KeptCurrentError(f"the state of {self.id} belongs to a pipeline that keeps its tables current")

    def shutdown(self) -> None:
        """Ask a run to stop. Copies: no retry and no further table begins, their jobs in Spark are cancelled. Changes:
        what is being written is finished, and capture ends cleanly. May be called in a signal's handler."""
        self._asked = True
        self._stopping.set()

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """The directory where this run's copies land, for this run alone."""
        root = self.settings.staging or self.destination.staging_root()
        timeout, notify = self.settings.busy_timeout, self.listener.notice
        if root is None:
            parent = temporary_root()
            root, timeout = parent / f"run-{uuid.uuid4().hex[:8]}", timedelta(0)
        elif self.settings.staging is not None:
            root = root / ".walrelay-staging"
        with staging_area(root.absolute(), timeout=timeout, notify=notify) as area:
            yield area


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
