"""A lake while it is written to: copies adopt the files that landed, changes are merged by Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import SPARK
from walrelay.changes.spark_values import Holding
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.lake.apply import TableApplication, Taken
from walrelay.destinations.lake.failures import naming
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.lake.maintenance import Maintenance
from walrelay.destinations.lake.names import refuse_twin_columns
from walrelay.destinations.lake.progress_file import ProgressFile
from walrelay.destinations.lake.sessions import Sessions
from walrelay.destinations.lake.tables import Tables
from walrelay.destinations.notices import not_maintained
from walrelay.errors import DestinationError, StoppedError, WalrelayError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")
SIDE_BY_SIDE = 4
"""Tables that are written at the same time."""


class LakeRun:
    """`own` is the lake's directory for what is ours. A table is written by one thread at a time."""

    def __init__(
        self,
        lake: str,
        own: Path,
        format_: LakeFormat,
        context: DestinationContext,
        maintain_every: timedelta | None = None,
    ) -> None:
        self._context = context
        self._format = format_
        self._sessions = Sessions(context, format_.session_settings)
        self._tables = Tables(lake, format_, context)
        pipeline = context.pipeline_name or context.pipeline_id
        self._progress = ProgressFile(own / f"progress-{pipeline}.json")
        self._maintenance = Maintenance(own / f"maintenance-{pipeline}.json", maintain_every)
        self._alone: dict[TableId, threading.Lock] = {}

    @contextmanager
    def _writing(self, table: TableId, name: object, doing: str) -> Iterator[SparkSession]:
        with (
            self._alone.setdefault(table, threading.Lock()),
            self._sessions.session(f"{doing} {name}") as spark,
            naming(table, name, doing),
        ):
            yield spark

    # ------------------------------------------------------------------------------------------------------- copies

    def forget(self, schema: TableSchema) -> None:
        refuse_twin_columns(schema)
        self._tables.place(schema)
        self._tables.refuse_stranger(schema, copying=True)
        self._progress.forget(schema.id)
        self._maintenance.forget(schema.id)
        held = self._tables.held(schema.id)
        if held is not None and held.facts.applied:
            with self._writing(schema.id, schema.name, "preparing the copy of") as spark:
                self._format.forget(spark, held, self._tables.app(schema.id))
                self._tables.reread(schema.id)

    def adopt(self, schema: TableSchema, rows: TableRows) -> None:
        """The landed files, in place of whatever was there, in one commit."""
        refuse_twin_columns(schema)
        if not schema.columns:
            raise DestinationError(
                f"every table of {self._format.title} has columns, and {schema.name} has none",
                hint="Leave it out of the publication.",
            )
        with self._writing(schema.id, schema.name, "copying") as spark:
            self._tables.follow_name(spark, schema)
            self._tables.refuse_stranger(schema, copying=True)
            place, copied = self._tables.place(schema), rows.snapshot_lsn or Lsn(0)
            marks = self._tables.marks(schema, (copied, 0), copied)
            hit("destination.before_commit")
            self._format.replace(spark, place, schema, self._tables.app(schema.id), marks, rows.files)
            hit("destination.committed")
            self._tables.made(schema.id, place)

    # ------------------------------------------------------------------------------------------------------ changes

    def take_all(self, batch: EventBatch) -> list[tuple[TableId, Taken]]:
        """Every table's changes, several side by side, and shapes that no change has shown."""
        parts = batch.tables()
        work: list[Callable[[], Taken]] = [partial(self._take, batch, part) for part in parts]
        work += [partial(self._show, shown) for shown in batch.shapes]
        done = _side_by_side(work)
        self._reached(batch)
        self._look_after(batch)
        return [(part.schema.id, one) for part, one in zip(parts, done, strict=False)]

    def _take(self, batch: EventBatch, part: TableChanges) -> Taken:
        holding = Holding(SPARK, self._context.settings.special_values)
        with self._writing(part.schema.id, part.schema.name, f"applying changes up to {part.to} to") as spark:
            return self._application(spark).take(batch.log.storage, part, holding)

    def _show(self, version: SchemaVersion) -> Taken:
        with self._writing(version.schema.id, version.schema.name, "altering") as spark:
            self._application(spark).follow([version])
        return Taken()

    def _application(self, spark: SparkSession) -> TableApplication:
        return TableApplication(spark, self._format, self._tables)

    # ----------------------------------------------------------------------------------------------------- progress

    def _reached(self, batch: EventBatch) -> None:
        """Tables that took part and had no changes are as far."""
        own = {one.table: said for one in batch.ranges or () if (said := self._own_word(one.table)) is not None}
        self._progress.record({table: said for table, said in own.items() if said < batch.to}, batch.to)

    def applied(self, table: TableId) -> Lsn | None:
        own = self._own_word(table)
        return None if own is None else self._progress.reached(table, own)

    def _own_word(self, table: TableId) -> Lsn | None:
        """What the table itself says; 0 after a copy, None when it is not there."""
        held = self._tables.held(table)
        return None if held is None else Lsn(held.facts.applied or 0)

    # -------------------------------------------------------------------------------------------------- maintenance

    def _look_after(self, batch: EventBatch) -> None:
        """The tables of the batch that are due, now that all of it is in them and before the next one."""
        if self._context.stopping.is_set():
            return
        tables = self._tables.ids() if batch.ranges is None else [one.table for one in batch.ranges]
        own = {table: said for table in tables if (said := self._own_word(table)) is not None}
        _side_by_side([partial(self._maintain, table, own[table]) for table in self._maintenance.due(own)])

    def _maintain(self, table: TableId, own: Lsn) -> None:
        """What goes wrong is no reason to stop: the table is right, only slower to read than it might be."""
        held = self._tables.held(table)
        if held is None:
            return
        name = self._format.shown(held.place)
        try:
            with self._writing(table, name, "maintaining") as spark:
                self._format.maintain(spark, self._tables.reread(table))
        except StoppedError:
            return  # still due
        except WalrelayError as error:
            self._maintenance.failed(table)
            self._context.notify(not_maintained(name, error))
        else:
            self._maintenance.done(table, own)


def _side_by_side(work: list[Callable[[], R]]) -> list[R]:
    """All of it, also when some fails; then what failed first is raised."""
    if len(work) == 1:
        return [work[0]()]
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="walrelay-lake") as pool:
        futures: list[Future[R]] = [pool.submit(one) for one in work]
    return [one.result() for one in futures]
