"""The table sync worker: copies one table, from snapshot to durable rows, and again when the connection was lost."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import TYPE_CHECKING

from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination, TableRows
from walrelay.errors import SparkJobError, WalrelayError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.phases import DataSync, Errored, FinishedCopy, NoRetry, TimedRetry
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.postgres.catalog import PublishedTable, read_schema
from walrelay.postgres.ranges import CtidRange, plan_ranges
from walrelay.postgres.slot import inserted_lsn
from walrelay.postgres.snapshot import Snapshot, exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_job import LandedCopy, run_copy_job
from walrelay.spark.copy_task import CopyTask
from walrelay.spark.failures import insist
from walrelay.spark.session import forget_dead_workers
from walrelay.stores.base import PipelineStore
from walrelay.workers.lock_watch import LockWatch, TableLockedError
from walrelay.workers.progress import task_name
from walrelay.workers.report import Listener, TableReport
from walrelay.workers.retry import delays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TASK_FAILED, _BY_ITSELF = "Job aborted due to stage failure", "api.python.PythonException"
"""Spark's words for a job of which a task failed, and for one that failed by what it did. Without the latter it lost a
process, under the task or before it, for which Spark has many words."""


class WorkerLostError(SparkJobError):
    code = "spark.worker_lost"
    default_hint = "The copy starts again; if it keeps happening look whether the machine runs out of memory."
    retryable = True


class StoppedError(WalrelayError):
    code = "pipeline.stopped"
    default_hint = "The next run copies the table."


@dataclass(frozen=True)
class CopyRun:
    """What all table sync workers of a run share."""

    id: str
    source: PostgresSource
    destination: Destination
    store: PipelineStore
    settings: CopySettings
    spark: SparkSession
    staging: Path
    listener: Listener
    stopping: Event
    reading: BoundedSemaphore
    """Bounds how many tables are read from the source at a time. One that is being loaded holds up no other."""


def sync_table(run: CopyRun, table: PublishedTable) -> TableReport:
    """Copy the table; a failure is in the report and in the store, and never stops another table."""
    begun = time.monotonic()
    waits = delays(run.settings.retry_delay, run.settings.retries)
    for attempt in count(1):
        run.listener.table_started(table.name, attempt)
        try:
            copied = copy_once(run, table, attempt)
        except StoppedError as error:
            return TableReport(table.name, 0, time.monotonic() - begun, attempt, error=error)
        except WalrelayError as error:
            wait = next(waits, None) if error.retryable and not run.stopping.is_set() else None
            policy = NoRetry() if wait is None else TimedRetry(attempt)
            run.store.update_table_replication_state(table.id, Errored(error.message, error.hint or None, policy))
            if wait is None:
                return _ended(run, TableReport(table.name, 0, time.monotonic() - begun, attempt, error=error))
            run.listener.table_retrying(table.name, error, wait.total_seconds())
            run.stopping.wait(wait.total_seconds())
        else:
            report = TableReport(table.name, copied.rows, time.monotonic() - begun, attempt, copied.treated)
            return _ended(run, report)
    raise AssertionError("count() does not end")


def _ended(run: CopyRun, report: TableReport) -> TableReport:
    # A copy that was cancelled has not failed; whoever stopped it knows.
    if report.error is None or not run.stopping.is_set():
        run.listener.table_finished(report)
    return report


@dataclass(frozen=True)
class Copied:
    """A table's copy, durable in the destination."""

    rows: int
    treated: Counter[Special]
    visible: str
    """The snapshot, as `pg_current_snapshot()` prints it: which transactions the copy has seen."""
    seen_lsn: Lsn
    """All of those end at or before this."""


def copy_once(run: CopyRun, table: PublishedTable, attempt: int) -> Copied:
    """One attempt: one snapshot, all ranges, then the destination."""
    directory = run.staging / f"{run.id}-{table.id}-{attempt}"
    application = task_name(run.id, table.id, attempt)
    try:
        with (
            _turn(run),
            exported_snapshot(run.source, application=f"walrelay {run.id} snapshot", table=table.name) as snapshot,
        ):
            schema = read_schema(
                snapshot.connection, table, run.settings.unknown_types, publication=run.source.publication
            )
            run.destination.drop_table_for_copy(schema)
            run.store.clear_table_copy_state(table.id)
            run.store.update_table_replication_state(table.id, DataSync())
            seen_lsn = inserted_lsn(snapshot.connection)
            task = _task(run, schema_of=schema, snapshot=snapshot, application=application, directory=directory)
            ranges = plan_ranges(
                schema,
                range_bytes=run.settings.range_bytes,
                max_ranges=run.settings.max_ranges,
                parallelism=insist("planning a copy", lambda: run.spark.sparkContext.defaultParallelism),
            )
            directory.mkdir()
            hit("copy.during")
            landed = _landed(run, table, task, ranges, snapshot)
        run.listener.table_writing(table.name, landed.rows)
        rows = TableRows(schema, landed.files, task.target, landed.rows, snapshot.lsn, run.spark)
        run.destination.write_table_rows(schema, rows).insist(f"the copy of {table.name}")
        run.store.store_table_schema(schema, snapshot.lsn)
        run.store.update_table_replication_state(table.id, FinishedCopy())
        hit("copy.after_finished")
        return Copied(landed.rows, landed.treated, snapshot.visible, seen_lsn)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _turn(run: CopyRun) -> Iterator[None]:
    with run.reading:
        if run.stopping.is_set():
            raise StoppedError("the pipeline was stopped before this copy began")
        yield


def _landed(
    run: CopyRun, table: PublishedTable, task: CopyTask, ranges: Sequence[CtidRange], snapshot: Snapshot
) -> LandedCopy:
    with LockWatch(snapshot, task.application) as locks:
        try:
            return run_copy_job(run.spark, task, ranges)
        except SparkJobError as error:
            said = str(error.__cause__)
            if _TASK_FAILED not in said or _BY_ITSELF in said:
                raise
            forget_dead_workers(run.spark)
            raise WorkerLostError(
                f"a process that copied {table.name} was killed", context={"table": str(table.name)}
            ) from error
        except WalrelayError as error:
            if not locks.ended:
                raise
            raise TableLockedError(
                f"somebody wanted {table.name} for himself while it was copied", context={"table": str(table.name)}
            ) from error


def _task(run: CopyRun, *, schema_of: TableSchema, snapshot: Snapshot, application: str, directory: Path) -> CopyTask:
    return CopyTask(
        source=run.source,
        schema=schema_of,
        snapshot=snapshot.name,
        target=run.destination.target,
        special_values=run.settings.special_values,
        chunk_bytes=run.settings.chunk_bytes,
        file_bytes=run.settings.file_bytes,
        application=application,
        directory=str(directory) if run.destination.lands_files else None,
    )
