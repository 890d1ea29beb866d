"""What a destination that holds tables knows of each: whose it is, how far it has come, and which shape it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from walrelay.changes.shapes import HeldColumn
from walrelay.destinations.base import DestinationContext
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table looks like in the destination, and since when."""

    name: TableName
    columns: tuple[HeldColumn, ...]
    lsn: Lsn
    """Of the schema version it follows; of a copy, the snapshot's."""
    version: int
    """0 for a copy."""

    def is_behind(self, version: SchemaVersion) -> bool:
        """Whether the schema version is newer: a table never goes back to an older one (SEMANTICS 18)."""
        return (version.from_lsn, version.version) > (self.lsn, self.version)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table has come."""

    applied: Lsn | None
    """Every transaction that ends up to here is in it; None after a copy, until the first changes."""
    copied: Lsn | None
    """Where the snapshot of its copy was taken; None for a table that changes alone have made."""


@dataclass(frozen=True, slots=True)
class Writer:
    """On whose behalf the destination is written."""

    source_id: str | None = None
    """None where that is not known."""
    source_name: str = ""
    pipeline: str | None = None
    """Which one keeps the tables current; None for copies that nobody does."""
    names: Callable[[Collection[TableId]], Mapping[TableId, TableName] | None] = field(
        default=lambda _: None, compare=False
    )
    """What the source calls these tables now: without those that are gone; None when it cannot be asked."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Whose table stands under a name."""

    name: TableName
    table: TableId
    source_id: str | None
    pipeline: str | None


def writer_of(context: DestinationContext) -> Writer:
    return Writer(context.source_id, context.source_name, context.pipeline_name, context.names)
