"""Which tables of a lake are this run's, where they stand, and what they say of themselves.

Only this run writes to them, so what was read once holds until it writes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.keepers import refuse_stranger
from walrelay.destinations.lake.format import (
    COPIED,
    KEY,
    PIPELINE,
    SHAPE_LSN,
    SHAPE_VERSION,
    SOURCE,
    TABLE,
    Held,
    LakeFormat,
    Place,
)
from walrelay.errors import NameClashError, OtherSourceError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables:
    """Of one source, in one lake; `lake` is its name for people."""

    def __init__(self, lake: str, format_: LakeFormat, context: DestinationContext) -> None:
        self._lake = lake
        self._format = format_
        self._source_id = context.source_id or ""
        self._source_name = context.source_name
        self._context = context
        self._pipeline = context.pipeline_name or context.pipeline_id
        self._held: dict[TableId, Held] = {}
        for place in format_.places():
            facts = format_.read(place, "")
            if facts is not None and facts.properties.get(SOURCE) == self._source_id:
                self._read(int(facts.properties[TABLE]), place)

    def app(self, table: TableId) -> str:
        """The application under whose name the position reached is committed."""
        return f"walrelay.{self._pipeline}.{table}"

    def ids(self) -> list[TableId]:
        return list(self._held)

    def held(self, table: TableId) -> Held | None:
        return self._held.get(table)

    def refuse_stranger(self, schema: TableSchema, *, copying: bool) -> None:
        """Raise when another pipeline keeps the table current. One that begins anew, under the same id, takes over the
        tables that it copies."""
        held = self._held.get(schema.id)
        keeper = "" if held is None else held.facts.properties.get(PIPELINE, "")
        refuse_stranger(
            schema.id, schema.name, keeper, self._context, copying=copying, place=str(self._lake), kind="directory"
        )

    def reread(self, table: TableId) -> Held:
        """After a commit, or before one: somebody else may have made one."""
        return self.made(table, self._held[table].place)

    def made(self, table: TableId, place: Place) -> Held:
        """A table was made here."""
        found = self._read(table, place)
        assert found is not None, "it was there a moment ago"
        return found

    def _read(self, table: TableId, place: Place) -> Held | None:
        facts = self._format.read(place, self.app(table))
        if facts is None:
            return None
        self._held[table] = Held(place, facts)
        return self._held[table]

    def applied(self, table: TableId, to: Lsn) -> None:
        """Changes up to here were committed to the table."""
        held = self._held[table]
        facts = replace(held.facts, applied=int(to), has_rows=True)
        self._held[table] = replace(held, facts=facts)

    def place(self, schema: TableSchema) -> Place:
        """Where the table is to stand; raises when what stands there is not ours."""
        wanted = self._format.place(schema.name)
        if any(one.place == wanted for one in self._held.values()):
            return wanted
        facts = self._format.read(wanted, "")
        if facts is None:
            return wanted
        source, shown = facts.properties.get(SOURCE), self._format.shown(wanted)
        if source is None:
            raise NameClashError(
                f"{shown} is a table already, and walrelay has not made it",
                hint="Move it away, or choose another directory.",
            )
        raise OtherSourceError(
            f"{schema.name} in {self._lake} has rows of another source ({source}); this one is {self._source_name}"
            f" ({self._source_id})",
            hint=f"Choose another directory; or, if nobody wants that copy any more, remove {shown}.",
        )

    def follow_name(self, spark: SparkSession, schema: TableSchema) -> None:
        """Move the table to where its name says."""
        held, wanted = self._held.get(schema.id), self.place(schema)
        self._make_room(spark, schema, wanted)
        if held is not None and held.place != wanted:
            self._move(spark, schema.id, wanted)

    def _make_room(self, spark: SparkSession, schema: TableSchema, wanted: Place) -> None:
        """Free the place from another table of ours. One that the source has dropped leaves its place to a new table of
        the name; one that has lost its name to this one gets its own when the log tells, and waits aside."""
        other = next((table for table, one in self._held.items() if one.place == wanted), None)
        if other is None or other == schema.id:
            return
        names = self._context.names([other])
        if names is not None and other not in names and schema.id not in self._held:
            left = self._held.pop(other)
            self._held[schema.id] = replace(left, facts=replace(left.facts, applied=None))
            return
        aside = TableName(schema.name.schema, f"{schema.name.name} {other}")
        self._move(spark, other, self._format.place(aside))

    def _move(self, spark: SparkSession, table: TableId, wanted: Place) -> None:
        held = self._held[table]
        self._format.move(spark, held.place, wanted)
        self._held[table] = replace(held, place=wanted)

    def marks(self, schema: TableSchema, shape: tuple[Lsn, int], copied: Lsn | None) -> dict[str, str]:
        """Properties for a table with this shape."""
        return {
            TABLE: str(schema.id),
            SOURCE: self._source_id,
            PIPELINE: self._context.pipeline_name or "",
            KEY: json.dumps(schema.primary_key),
            SHAPE_LSN: str(shape[0]),
            SHAPE_VERSION: str(shape[1]),
            COPIED: "" if copied is None else str(copied),
        }
