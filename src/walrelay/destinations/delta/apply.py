"""Takes one table's part of a batch: its columns first, then its changes with the position reached, in one commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from walrelay.changes.batch import TableEvents
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.shapes import match_held
from walrelay.changes.spark_dialect import DIALECT
from walrelay.changes.spark_values import Holding
from walrelay.destinations.delta.shape import altered, fresh, held_of, widened
from walrelay.destinations.delta.table import USER_METADATA, DeltaTable, create
from walrelay.destinations.delta.tables import Held, Tables, metadata, note
from walrelay.destinations.lake.names import refuse_twin_columns
from walrelay.destinations.lake.statements import Statements
from walrelay.errors import CopyAgainError
from walrelay.failpoints import hit
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_WIDENING = "'delta.enableTypeWidening' = 'true'"


@dataclass(frozen=True)
class Taken:
    """What became of a table's changes."""

    changes: int = 0
    treated: Counter[Special] = field(default_factory=Counter)


class TableApplication:
    """By a Spark session that nobody else uses meanwhile."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables

    def take(self, storage: Storage, part: TableEvents, holding: Holding) -> Taken:
        """What is new of the changes."""
        held = self._tables.held(part.schema.id)
        if held is not None:
            held = self._tables.reread(part.schema.id)
            self._tables.refuse_stranger(part.schema, copying=False)
        applied = Lsn(held.facts.applied or 0) if held is not None else Lsn(0)
        if applied >= part.to:
            return Taken()
        frames = TableFrames(self._spark, storage, replace(part, after=max(part.after, applied)), holding)
        if not frames.survey.changes:
            return Taken()  # the files' changes are not of this batch; nor is the shape that they have
        if frames.survey.unnamed:
            raise unnamed_rows(frames.schema, frames.survey.unnamed)
        refuse_unheld(frames.schema, frames.survey.specials, holding.special_values)
        held = self.follow([version for version, _ in part.files])
        table = DeltaTable(self._spark, held.path)
        has_added = any(one.added for one in held_of(held.facts))
        statements = Statements(frames, table.sql_name, held.copied, has_added=has_added)
        said = {"walrelay": "changes", "lsn": str(part.to), "committed_at": str(frames.survey.last_commit)}
        guard = {_APP: self._tables.app(part.schema.id), _VERSION: str(int(part.to)), USER_METADATA: json.dumps(said)}
        hit("destination.before_commit")
        self._run(statements, guard)
        hit("destination.committed")
        self._tables.applied(part.schema.id, part.to)
        return Taken(frames.survey.changes, frames.survey.treated)

    def _run(self, statements: Statements, settings: Mapping[str, str]) -> None:
        """A replay makes no commit. The settings go with the statement: they would swallow another one's commit."""
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        try:
            statements.run()
        finally:
            for name in settings:
                self._spark.conf.unset(name)

    def follow(self, versions: list[SchemaVersion]) -> Held:
        """The table with the columns and the name of the last of these versions, each of which it goes through."""
        last = versions[-1]
        schema = last.schema
        refuse_twin_columns(schema)
        held = self._tables.held(schema.id)
        if held is None:
            return self._create(last)
        if (last.from_lsn, last.version) <= held.shape_place:
            return held
        self._refuse_guesses(held, versions)
        for path in self._tables.follow_name(schema):
            DeltaTable(self._spark, path).forget()
        held = self._tables.reread(schema.id)
        table = DeltaTable(self._spark, held.path)
        for one in list(widened(schema, held.facts)):
            assert one.held is not None
            # Only now: from then on a reader must know of it.
            table.sql(f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({_WIDENING})")
            table.sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN {DIALECT.quoted(one.held.name)} TYPE {one.type}")
            held = self._tables.reread(schema.id)
        fields, mapping = altered(schema, held.facts)
        marks = self._tables.marks(schema, (last.from_lsn, last.version), held.copied)
        table.commit([], metadata=metadata(held.facts, fields, {**held.facts.properties, **mapping, **marks}))
        hit("destination.ddl")
        return self._tables.reread(schema.id)

    def _create(self, version: SchemaVersion) -> Held:
        """A table that changes alone make."""
        schema = version.schema
        for moved in self._tables.follow_name(schema):
            DeltaTable(self._spark, moved).forget()
        if (left := self._tables.held(schema.id)) is not None:
            raise CopyAgainError(f"{left.path} holds what a table that was dropped has left")
        path = self._tables.place(schema)
        fields, mapping = fresh(schema, None)
        marks = self._tables.marks(schema, (version.from_lsn, version.version), None)
        create(path, metadata(None, fields, {**mapping, **marks}), [note("created", version.from_lsn)])
        return self._tables.made(schema.id, path)

    @staticmethod
    def _refuse_guesses(held: Held, versions: list[SchemaVersion]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        if held.copied is None:
            return
        columns, has_rows = held_of(held.facts), held.facts.has_files
        for version in versions:
            wanted = match_held(version.schema.columns, columns, DIALECT)
            unknown = [one.column.name for one in wanted if not one.is_told]
            if has_rows and (unknown or version.doubt):
                why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
                raise CopyAgainError(f"{version.schema.name} was altered: {why}")
            columns = tuple(one.becomes() for one in wanted)
            has_rows = True  # perhaps: changes of this batch have brought some
