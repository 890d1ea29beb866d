"""Which tables of a lake are this run's, where they stand, and what they say of themselves.

Only this run writes to them, so what was read once holds until it writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.delta.table import DeltaFacts, read_facts
from walrelay.destinations.lake.names import table_directory
from walrelay.errors import NameClashError, OtherPipelineError, OtherSourceError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema
from walrelay.stores.names import plain_name

TABLE, SOURCE, PIPELINE, KEY = "walrelay.table", "walrelay.source", "walrelay.pipeline", "walrelay.key"
COPIED, SHAPE_LSN, SHAPE_VERSION = "walrelay.copied_lsn", "walrelay.shape_lsn", "walrelay.shape_version"
"""Properties by which a table says what is in it."""


@dataclass(frozen=True)
class Held:
    """A table of ours."""

    path: Path
    facts: DeltaFacts

    @property
    def copied(self) -> Lsn | None:
        """Where the snapshot of its copy was taken; None for a table that changes alone have made."""
        said = self.facts.properties.get(COPIED)
        return Lsn.parse(said) if said else None

    @property
    def shape_place(self) -> tuple[Lsn, int]:
        """Since when, and in which version, it has its columns."""
        said = self.facts.properties
        return Lsn.parse(said[SHAPE_LSN]), int(said[SHAPE_VERSION])


class Tables:
    """Of one source, in one lake."""

    def __init__(self, root: Path, context: DestinationContext) -> None:
        self._root = root
        self._source_id = context.source_id or ""
        self._source_name = context.source_name
        self._context = context
        self._pipeline = context.pipeline_name or context.pipeline_id
        self._held: dict[TableId, Held] = {}
        for log in sorted(root.glob("*/*/_delta_log")):
            facts = read_facts(log.parent, "")
            if facts is not None and facts.properties.get(SOURCE) == self._source_id:
                table = int(facts.properties[TABLE])
                self._read(table, log.parent)

    def app(self, table: TableId) -> str:
        """The application under whose name the position reached is committed."""
        return f"walrelay.{self._pipeline}.{table}"

    def held(self, table: TableId) -> Held | None:
        return self._held.get(table)

    def refuse_stranger(self, schema: TableSchema, *, copying: bool) -> None:
        """Raise when another pipeline keeps the table current. One that begins anew, under the same id, takes over the
        tables that it copies."""
        held, context = self._held.get(schema.id), self._context
        keeper = "" if held is None else held.facts.properties.get(PIPELINE, "")
        if not keeper or keeper == context.pipeline_name:
            return
        if copying and context.mode == "both" and plain_name(keeper) == context.pipeline_id:
            context.notify(f"{schema.name} was kept current by the pipeline {keeper}; this one takes it over")
            return
        this = f"the pipeline {context.pipeline_name}" if context.pipeline_name else "a copy without changes"
        raise OtherPipelineError(
            f"{schema.name} in {self._root} is kept current by the pipeline {keeper}; this is {this}",
            hint=f"Run that pipeline, or choose another directory; or take its tables over with --id"
            f" {plain_name(keeper)} and a --state directory that is empty.",
            context={"table": str(schema.name)},
        )

    def reread(self, table: TableId) -> Held:
        """After a commit, or before one: somebody else may have made one."""
        found = self._read(table, self._held[table].path)
        assert found is not None, "it was there a moment ago"
        return found

    def _read(self, table: TableId, path: Path) -> Held | None:
        facts = read_facts(path, self.app(table))
        if facts is None:
            return None
        self._held[table] = Held(path, facts)
        return self._held[table]

    def made(self, table: TableId, path: Path) -> Held:
        """A table was made here."""
        found = self._read(table, path)
        assert found is not None, "it was there a moment ago"
        return found

    def applied(self, table: TableId, to: Lsn) -> None:
        """Changes up to here were committed to the table."""
        held = self._held[table]
        facts = replace(held.facts, applied=int(to), has_files=True)
        self._held[table] = replace(held, facts=facts)

    def place(self, schema: TableSchema) -> Path:
        """Where the table is to stand; raises when what stands there is not ours."""
        wanted = table_directory(self._root, schema.name)
        if any(one.path == wanted for one in self._held.values()):
            return wanted
        facts = read_facts(wanted, "")
        if facts is None:
            return wanted
        source = facts.properties.get(SOURCE)
        if source is None:
            raise NameClashError(
                f"{wanted} is a Delta table already, and walrelay has not made it",
                hint="Move it away, or choose another directory.",
            )
        raise OtherSourceError(
            f"{schema.name} in {self._root} has rows of another source ({source}); this one is {self._source_name}"
            f" ({self._source_id})",
            hint=f"Choose another directory; or, if nobody wants that copy any more, remove {wanted}.",
        )

    def follow_name(self, schema: TableSchema) -> list[Path]:
        """Move the table to where its name says; the paths at which something else stands now."""
        held, wanted = self._held.get(schema.id), self.place(schema)
        moved = self._make_room(schema, wanted)
        if held is None or held.path == wanted:
            return moved
        wanted.parent.mkdir(parents=True, exist_ok=True)
        held.path.replace(wanted)
        self._held[schema.id] = replace(held, path=wanted)
        return [held.path, wanted, *moved]

    def _make_room(self, schema: TableSchema, wanted: Path) -> list[Path]:
        """Free the place from another table of ours. One that the source has dropped leaves its place to a new table of
        the name; one that has lost its name to this one gets its own when the log tells, and waits aside."""
        other = next((table for table, one in self._held.items() if one.path == wanted), None)
        if other is None or other == schema.id:
            return []
        names = self._context.names([other])
        if names is not None and other not in names and schema.id not in self._held:
            left = self._held.pop(other)
            self._held[schema.id] = replace(left, facts=replace(left.facts, applied=None))
            return []
        aside = table_directory(self._root, TableName(schema.name.schema, f"{schema.name.name} {other}"))
        wanted.replace(aside)
        self._held[other] = replace(self._held[other], path=aside)
        return [wanted, aside]

    def marks(self, schema: TableSchema, place: tuple[Lsn, int], copied: Lsn | None) -> dict[str, str]:
        """Properties for a table with this shape."""
        return {
            TABLE: str(schema.id),
            SOURCE: self._source_id,
            PIPELINE: self._context.pipeline_name or "",
            KEY: json.dumps(schema.primary_key),
            SHAPE_LSN: str(place[0]),
            SHAPE_VERSION: str(place[1]),
            COPIED: "" if copied is None else str(copied),
        }

    def transaction(self, table: TableId, version: int) -> dict[str, Any]:
        """The action that records how far the table is."""
        return {"txn": {"appId": self.app(table), "version": version, "lastUpdated": _now()}}


def metadata(facts: DeltaFacts | None, fields: list[dict[str, Any]], properties: Mapping[str, str]) -> dict[str, Any]:
    """The action that describes a table; one that is there keeps its id."""
    return {
        "id": facts.id if facts is not None else str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": _now(),
    }


def note(what: str, lsn: Lsn | None, **more: str) -> dict[str, Any]:
    """The action by which a commit says, in the table's history, where it comes from."""
    said = {"walrelay": what, "lsn": "" if lsn is None else str(lsn), **more}
    return {
        "commitInfo": {
            "timestamp": _now(),
            "operation": "WRITE",
            "operationParameters": {},
            "userMetadata": json.dumps(said),
        }
    }


def _now() -> int:
    return int(time.time() * 1000)
