"""The composition root: a source, a destination, a store, and what to do between them."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal, get_args

from walrelay.config.settings import CopySettings, copy_settings
from walrelay.decode.warm import ensure_warm
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.staging import staging_area, sweep
from walrelay.errors import ConfigError, CopyFailedError
from walrelay.model.phases import Init
from walrelay.postgres.catalog import PublishedTable, published_tables, storage_of
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import spark_session
from walrelay.stores.base import PipelineStore
from walrelay.stores.memory import MemoryStore
from walrelay.workers.progress import CopyProgress
from walrelay.workers.report import Listener, RunSummary, Silent, TableReport
from walrelay.workers.table_sync import CopyRun, sync_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["copy"]


class Pipeline:
    """Copies every table of the source's publication into the destination.

    `spark` is the session to use; without one the active session, else a quiet local one (`spark_settings` override
    its defaults, see `walrelay.spark.session.LOCAL_SETTINGS`). `settings` says how to copy.
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
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"no such mode: {mode}", hint=f"This version has: {', '.join(get_args(Mode))}.")
        if not source.publication:
            raise ConfigError("the source names no publication", hint='PostgresSource(url, publication="…")')
        self.source = source
        self.destination = destination
        self.store: PipelineStore = store if store is not None else MemoryStore()
        self.mode = mode
        self.settings = settings or copy_settings()
        self._spark = spark
        self._spark_settings = spark_settings
        self._listener: Listener = listener or Silent()
        self._stopping = Event()

    def run(self) -> RunSummary:
        """Copy all tables and return what was done. When some failed the others are in place, and it raises
        `CopyFailedError` with the summary in `.summary`."""
        begun = time.monotonic()
        self._stopping.clear()
        tables = self._discover()
        context = DestinationContext("walrelay", self.settings, notify=self._listener.notice)
        self.destination.startup(context)
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
        """Ask a running copy to stop: no retry and no further table begins, Spark's jobs are cancelled."""
        self._stopping.set()
        if self._spark is not None:
            self._spark.sparkContext.cancelAllJobs()

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
        self._spark = spark_session(self._spark, self._spark_settings)
        run = CopyRun(
            id=uuid.uuid4().hex[:8],
            source=self.source,
            destination=self.destination,
            store=self.store,
            settings=self.settings,
            spark=self._spark,
            staging=staging,
            listener=self._listener,
            stopping=self._stopping,
        )
        names = {table.id: table.name for table in tables}
        pool = ThreadPoolExecutor(self.settings.max_tables, thread_name_prefix="walrelay-sync")
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
