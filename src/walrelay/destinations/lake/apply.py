"""Takes one table's part of a batch: its columns first, then its changes with the position reached, in one commit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.shapes import match_held
from walrelay.changes.spark_values import Holding
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.lake.format import Held, LakeFormat, Reached
from walrelay.destinations.lake.names import refuse_twin_columns
from walrelay.destinations.lake.statements import Statements
from walrelay.destinations.lake.tables import Tables
from walrelay.errors import CopyAgainError
from walrelay.failpoints import hit
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Taken:
    """What became of a table's changes."""

    changes: int = 0
    treated: Counter[Special] = field(default_factory=Counter)


class TableApplication:
    """By a Spark session that nobody else uses meanwhile."""

    def __init__(self, spark: SparkSession, format_: LakeFormat, tables: Tables) -> None:
        self._spark = spark
        self._format = format_
        self._tables = tables

    def take(self, storage: Storage, part: TableChanges, holding: Holding) -> Taken:
        """What is new of the changes."""
        held = self._tables.held(part.schema.id)
        if held is not None:
            held = self._tables.reread(part.schema.id)
            self._tables.refuse_stranger(part.schema, copying=False)
        applied = Lsn(held.facts.applied or 0) if held is not None else Lsn(0)
        if applied >= part.to:
            return Taken()
        frames = TableFrames(self._spark, storage, part.since(applied), holding)
        if not frames.survey.changes:
            return Taken()  # the files' changes are not of this batch; nor is the shape that they have
        if frames.survey.unnamed:
            raise unnamed_rows(frames.schema, frames.survey.unnamed)
        refuse_unheld(frames.schema, frames.survey.specials, holding.special_values)
        held = self.follow([version for version, _ in part.files])
        has_added = any(one.added for one in held.facts.columns)
        statements = Statements(frames, self._format.sql_name(held.place), held.copied, has_added=has_added)
        reached = Reached(self._tables.app(part.schema.id), part.to, str(frames.survey.last_commit))
        hit("destination.before_commit")
        self._format.commit(self._spark, held, reached, statements.run)
        hit("destination.committed")
        self._tables.applied(part.schema.id, part.to)
        return Taken(frames.survey.changes, frames.survey.treated)

    def follow(self, versions: list[SchemaVersion]) -> Held:
        """The table with the columns and the name of the last of these versions, each of which it goes through."""
        last = versions[-1]
        schema, shape = last.schema, (last.from_lsn, last.version)
        refuse_twin_columns(schema)
        held = self._tables.held(schema.id)
        if held is None:
            return self._create(last)
        if shape <= held.shape_place:
            return held
        self._refuse_guesses(held, versions)
        self._tables.follow_name(self._spark, schema)
        held = self._tables.reread(schema.id)
        marks = self._tables.marks(schema, shape, held.copied)
        self._format.alter(self._spark, held, schema, self._tables.app(schema.id), marks)
        hit("destination.ddl")
        return self._tables.reread(schema.id)

    def _create(self, version: SchemaVersion) -> Held:
        """A table that changes alone make."""
        schema = version.schema
        self._tables.follow_name(self._spark, schema)
        if (left := self._tables.held(schema.id)) is not None:
            raise CopyAgainError(f"{self._format.shown(left.place)} holds what a table that was dropped has left")
        place = self._tables.place(schema)
        marks = self._tables.marks(schema, (version.from_lsn, version.version), None)
        self._format.create(place, schema, self._tables.app(schema.id), marks)
        return self._tables.made(schema.id, place)

    def _refuse_guesses(self, held: Held, versions: list[SchemaVersion]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        if held.copied is None:
            return
        columns, has_rows = held.facts.columns, held.facts.has_rows
        for version in versions:
            wanted = match_held(version.schema.columns, columns, self._format.dialect)
            unknown = [one.column.name for one in wanted if not one.is_told]
            if has_rows and (unknown or version.doubt):
                why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
                raise CopyAgainError(f"{version.schema.name} was altered: {why}")
            columns = tuple(one.becomes() for one in wanted)
            has_rows = True  # perhaps: changes of this batch have brought some
