"""Takes one table's copy, or its part of a batch: load files, a stage, and one transaction."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.rows import TableRows
from walrelay.changes.shapes import held_columns
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.warehouse.follow import Follower
from walrelay.destinations.warehouse.landing import Landing
from walrelay.destinations.warehouse.names import stage_prefix
from walrelay.destinations.warehouse.plan import plan_for
from walrelay.destinations.warehouse.service import NewTable, Stage, Warehouse
from walrelay.destinations.warehouse.state import Kept, TableState
from walrelay.destinations.warehouse.tables import Tables
from walrelay.destinations.warehouse.values import WarehouseHolding
from walrelay.errors import CopyAgainError, DestinationThrottledError
from walrelay.failpoints import hit
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import Special

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKS = 3
"""So often a table is looked at anew that is further than was known."""


@dataclass(frozen=True)
class Taken:
    """What became of a table's changes, or its copy."""

    changes: int = 0
    treated: Counter[Special] = field(default_factory=Counter)


class TableWriter:
    """By one thread at a time for a table; `files` is where load files are written."""

    def __init__(self, warehouse: Warehouse, tables: Tables, context: DestinationContext, files: Path) -> None:
        self._warehouse = warehouse
        self._tables = tables
        self._context = context
        self._files = files
        self._follower = Follower(warehouse, tables)
        self._prefix = stage_prefix(context.pipeline_name or context.pipeline_id)

    # ---------------------------------------------------------------------------------------------------------- copies

    def replace(self, spark: SparkSession, schema: TableSchema, rows: TableRows) -> Taken:
        """The landed rows, in place of whatever was there."""
        self._tables.refuse(schema, copying=True)
        place, copied = self._tables.follow_name(schema), rows.snapshot_lsn or Lsn(0)
        new = NewTable(place, schema.columns, schema.primary_key, schema.key_columns)
        state = self._state(schema, place, (copied, 0), copied, has_rows=bool(rows.rows_total))
        self._tables.claim(state)
        with self._landing(schema.id) as (landing, stage_place):
            files, treated = landing.rows(spark, rows, self._context.settings.special_values)
            with self._loaded(Stage(stage_place, landing.copy_columns(schema.columns)), files) as stage:
                hit("destination.before_commit")
                self._warehouse.replace(new, stage if files else None)
                hit("destination.committed")
        self._tables.begin(state)
        return Taken(rows.rows_total, treated)

    def _state(
        self, schema: TableSchema, place: str, shape: tuple[Lsn, int], copied: Lsn | None, *, has_rows: bool
    ) -> TableState:
        return TableState(
            table=schema.id,
            source=self._tables.source,
            pipeline=self._context.pipeline_name or "",
            place=place,
            columns=held_columns(schema.columns, self._warehouse.dialect),
            key=schema.primary_key,
            shape=shape,
            copied=copied,
            copy=uuid4().hex,
            has_rows=has_rows,
        )

    # --------------------------------------------------------------------------------------------------------- changes

    def take(self, spark: SparkSession, storage: Storage, part: TableChanges) -> Taken:
        """What is new of the changes. A table that is further than was known here is looked at again: a transaction
        whose answer was lost, or that a dead run had begun, may have brought it there."""
        part = _of_batch(part)
        self._tables.refuse(part.schema, copying=False)
        kept = self._tables.kept(part.schema.id)
        for _ in range(LOOKS):
            since = (kept.applied if kept is not None else None) or Lsn(0)
            if since >= part.to:
                return Taken()
            taken = self._taken(spark, storage, part.since(since), since)
            if taken is not None:
                return taken
            kept = self._tables.reread(part.schema.id)
        raise DestinationThrottledError(f"somebody else writes to {part.schema.name} at the same time")

    def _taken(self, spark: SparkSession, storage: Storage, part: TableChanges, since: Lsn) -> Taken | None:
        """None when the table is at another position than this."""
        policy = self._context.settings.special_values
        holding = WarehouseHolding(self._warehouse.dialect.target, policy, self._warehouse.array_nulls)
        frames = TableFrames(spark, storage, part, holding)
        if not frames.survey.changes:
            return Taken()  # the files' changes are not of this batch; nor is the shape that they have
        if frames.survey.unnamed:
            raise unnamed_rows(frames.schema, frames.survey.unnamed)
        refuse_unheld(frames.schema, frames.survey.specials, policy)
        kept = self.follow([version for version, _ in part.files])
        if not self._transacted(frames, kept, since):
            return None
        self._tables.applied(part.schema.id, part.to)
        return Taken(frames.survey.changes, frames.survey.treated)

    def _transacted(self, frames: TableFrames, kept: Kept, since: Lsn) -> bool:
        table, state = frames.schema.id, kept.state
        with self._landing(table) as (landing, stage_place):
            files = landing.changes(frames, state.copied)
            with self._loaded(Stage(stage_place, landing.change_columns(frames)), files) as stage:
                plan = plan_for(
                    frames,
                    table=state.place,
                    state=self._tables.state_place(table),
                    stage=stage.place,
                    since=since,
                    copy=state.copy,
                    copied=state.copied,
                    has_added=any(one.added for one in state.columns),
                )
                hit("destination.before_commit")
                found = self._warehouse.apply(plan)
                hit("destination.committed")
        return found == (plan.lsn, plan.copy)

    def follow(self, versions: list[SchemaVersion]) -> Kept:
        """The table in the last of these shapes."""
        last = versions[-1]
        kept = self._tables.kept(last.schema.id)
        if kept is not None and kept.applied is not None:
            return self._follower.follow(kept, versions)
        self._tables.refuse(last.schema, copying=False)
        place = self._tables.follow_name(last.schema)
        if self._warehouse.columns(place) is not None:
            raise CopyAgainError(f"{place} holds what a table that was dropped has left")
        schema = last.schema
        state = self._state(schema, place, (last.from_lsn, last.version), None, has_rows=False)
        self._tables.claim(state)
        self._warehouse.replace(NewTable(place, schema.columns, schema.primary_key, schema.key_columns), None)
        return self._tables.begin(state)

    # ------------------------------------------------------------------------------------------------------------ both

    @contextmanager
    def _landing(self, table: TableId) -> Iterator[tuple[Landing, str]]:
        """A directory and a stage's name that nobody else has or had."""
        with tempfile.TemporaryDirectory(dir=self._files, prefix=f"{table}-") as directory:
            yield Landing(self._warehouse, Path(directory)), f"{self._prefix}{table}_{uuid4().hex[:12]}"

    @contextmanager
    def _loaded(self, stage: Stage, files: list[Path]) -> Iterator[Stage]:
        """For as long as it is there; what cannot be dropped is swept by the next run."""
        if files:
            self._warehouse.load(stage, files)
            hit("destination.staged")
        yield stage
        if files:
            self._warehouse.drop(stage)


def _of_batch(part: TableChanges) -> TableChanges:
    """Without files whose shape comes later: the last segment may hold more than the batch, and the table gets a shape
    with the changes that have it."""
    files = tuple(pair for pair in part.files if pair[0].from_lsn <= part.to)
    return replace(part, schema=files[-1][0].schema, files=files) if files else part
