"""What a table sync worker does first: one copy of one table, from snapshot to durable rows."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import TYPE_CHECKING

from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import SPARK
from walrelay.changes.spark_failures import insist
from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.destinations.relaying import Relay, Relaying
from walrelay.errors import SparkJobError, StoppedError, WalrelayError
from walrelay.failpoints import hit
from walrelay.model.fingerprints import Fingerprint
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import DataSync, FinishedCopy, TableReplicationPhase
from walrelay.model.ranges import CtidRange, plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.postgres.catalog import PublishedTable, read_schema
from walrelay.postgres.fingerprints import look
from walrelay.postgres.leaf_identities import refuse_odd_leaves
from walrelay.postgres.rights import naming_grants
from walrelay.postgres.slot import inserted_lsn
from walrelay.postgres.snapshot import Snapshot, exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.shaping.agreement import remember
from walrelay.shaping.function_copy import function_applied
from walrelay.shaping.shaping import Shaping
from walrelay.spark.copy_job import JobName, LandedCopy, run_copy_job
from walrelay.spark.copy_task import CopyTask
from walrelay.spark.session import forget_dead_workers
from walrelay.stores.base import PipelineStore
from walrelay.workers.fingerprint_book import FingerprintBook
from walrelay.workers.lock_watch import LockWatch, TableLockedError
from walrelay.workers.progress import task_name
from walrelay.workers.report import Listener
from walrelay.workers.standby_cut import StandbyCut, standby_cut
from walrelay.workers.treated import record_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TASK_FAILED, _BY_ITSELF = "Job aborted due to stage failure", "api.python.PythonException"
"""Spark's words for a job of which a task failed, and for one that failed by what it did. Without the latter it lost a
process, under the task or before it, for which Spark has many words."""


class WorkerLostError(SparkJobError):
    """A process that copied a table was killed."""

    code = "spark.worker_lost"
    default_hint = "The copy starts again; if it keeps happening look whether the machine runs out of memory."
    retryable = True


@dataclass(frozen=True)
class CopyRun:
    """What all table sync workers of a run share."""

    id: str
    pipeline: str
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
    set_phase: Callable[[TableId, TableReplicationPhase], None]
    fingerprints: FingerprintBook | None = None
    """Where to keep what the catalog says of a table, when somebody will look whether that has changed."""
    follows: bool = False
    """Whether changes come after the copies."""
    shaping: Shaping = field(default_factory=Shaping)


@dataclass(frozen=True)
class Copied:
    """A table's copy, durable in the destination."""

    rows: int
    treated: Counter[Special]
    visible: str | None
    """The snapshot, as `pg_current_snapshot()` prints it: which transactions the copy has seen; None on a standby."""
    seen_lsn: Lsn
    """All of those end at or before this."""
    cut: StandbyCut | None = None
    """On a standby: which transactions it has seen."""


def copy_once(run: CopyRun, table: PublishedTable, attempt: int) -> Copied:
    """One attempt: one snapshot, all ranges, then the destination."""
    directory = run.staging / f"{run.id}-{table.id}-{attempt}"
    application = task_name(run.id, table.id, attempt)
    try:
        with (
            _turn(run),
            naming_grants(run.source, table.name),
            exported_snapshot(
                run.source, application=f"walrelay {run.id} snapshot", table=table.name, stopping=run.stopping
            ) as snapshot,
        ):
            schema = read_schema(
                snapshot.connection, table, run.settings.unknown_types, publication=run.source.publication
            )
            fingerprint = _fingerprint(run, table, snapshot)
            if run.follows:
                refuse_odd_leaves(snapshot.connection, table.id, table.name, run.source.publication)
            shaped, function = run.shaping.shaped(schema), run.shaping.function_of(schema)
            run.destination.drop_table_for_copy(shaped)
            run.store.clear_table_copy_state(table.id)
            run.set_phase(table.id, DataSync())
            seen_lsn = inserted_lsn(snapshot.connection)
            task = _task(run, schema_of=schema, snapshot=snapshot, application=application, directory=directory)
            ranges = plan_ranges(
                schema,
                range_bytes=run.settings.range_bytes,
                max_ranges=run.settings.max_ranges,
                parallelism=insist("planning a copy", lambda: run.spark.sparkContext.defaultParallelism),
            )
            directory.mkdir(mode=0o700)
            hit("copy.during")
            landed = _landed(run, table, task, ranges, snapshot)
            cut = standby_cut(schema, snapshot)
        run.listener.table_writing(table.name, landed.rows)
        files, target = landed.files, run.destination.dialect.target
        if function is not None:
            session, file_bytes = run.shaping.session(), run.settings.file_bytes
            kept = task.keeps_files
            files = function_applied(session, function, files, directory, target, file_bytes, kept=kept)
        is_relayed = task.relay is not None
        rows = TableRows(shaped, files, target, landed.rows, snapshot.lsn, run.spark, is_relayed)
        written = run.destination.write_table_rows(shaped, rows).insist(f"the copy of {table.name}")
        treated = landed.treated + written.treated.get(table.id, Counter[Special]())
        record_copy(run.store, table.id, treated)
        run.store.store_table_schema(schema, snapshot.lsn)
        remember(run.store, run.shaping, table.id, table.name)
        if run.fingerprints is not None and fingerprint is not None:
            run.fingerprints.put(fingerprint, snapshot.lsn)
        run.set_phase(table.id, FinishedCopy())
        hit("copy.after_finished")
        if cut is not None:
            return Copied(landed.rows, treated, None, cut.settled or seen_lsn, cut)
        return Copied(landed.rows, treated, snapshot.visible, seen_lsn)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _fingerprint(run: CopyRun, table: PublishedTable, snapshot: Snapshot) -> Fingerprint | None:
    if run.fingerprints is None:
        return None
    return look(snapshot.connection, run.source.publication, [table.id]).tables.get(table.id)


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
            return run_copy_job(run.spark, task, ranges, JobName(run.id, run.pipeline))
        except SparkJobError as error:
            said = str(error.__cause__)
            if _TASK_FAILED not in said or _BY_ITSELF in said:
                raise
            forget_dead_workers(run.spark)
            raise WorkerLostError(
                f"a process that copied {table.name} was killed", context={"table": str(table.name)}
            ) from error
        except WalrelayError as error:
            if not locks.let_through:
                raise
            pids = ", ".join(map(str, sorted(locks.let_through)))
            raise TableLockedError(
                f"another session (pid {pids}) wanted an exclusive lock on {table.name} while it was copied",
                context={"table": str(table.name)},
            ) from error


def _task(run: CopyRun, *, schema_of: TableSchema, snapshot: Snapshot, application: str, directory: Path) -> CopyTask:
    return CopyTask(
        source=run.source,
        schema=schema_of,
        snapshot=snapshot.name,
        # A function is given Spark's types.
        target=SPARK if run.shaping.function_of(schema_of) else run.destination.dialect.target,
        special_values=run.settings.special_values,
        chunk_bytes=run.settings.chunk_bytes,
        file_bytes=run.settings.file_bytes,
        application=application,
        directory=str(directory) if run.destination.capabilities.lands_files else None,
        keeps_files=run.destination.capabilities.keeps_files,
        relay=_relay(run, schema_of, snapshot),
        plan=run.shaping.plan(schema_of),
        snapshot_lsn=snapshot.lsn,
    )


def _relay(run: CopyRun, schema: TableSchema, snapshot: Snapshot) -> Relay | None:
    """Nothing is passed on as it is of a table whose rows are shaped on the way: hidden values would arrive."""
    if not isinstance(run.destination, Relaying):
        return None
    if run.shaping.plan(schema) is not None or run.shaping.function_of(schema) is not None:
        return None
    return run.destination.relay(schema, snapshot.connection.info.server_version)
