"""What a destination can do and wants, as data: nobody has to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from walrelay.config.settings import MiB

Kind = Literal["tables", "stream", "nothing"]
"""`tables` mirror the source: one that is lost must be copied again. A `stream` keeps what has happened. `nothing` is
kept by those who only look."""
Lane = Literal["files", "frames", "events"]
"""By what a destination takes changes: the log's own files, DataFrames that Spark makes of them, or event by event."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How much a destination wants to be given at a time, and how often."""

    every: timedelta = timedelta(0)
    """Between two batches; 0 is as soon as there is something."""
    bytes: int = 64 * MiB
    """Of data files in one batch; a backlog comes in several. Nothing is seen of a batch, and nobody else is let in,
    until it is through."""
    piece_bytes: int = 8 * MiB
    """The same for a copied table that catches up, for which the others wait."""


@dataclass(frozen=True, slots=True)
class SparkNeeds:
    """What a destination wants of the Spark session, said before that starts."""

    packages: tuple[str, ...] = ()
    """Of Maven, `group:artifact:version`."""
    extensions: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """Of Spark, for which the packages are made: `4.1`. They fail in others, and not at once."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Of one destination, the same for as long as it runs."""

    kind: Kind = "nothing"
    takes_changes: bool = False
    """Whether `write_events` does something: whether it can be kept current."""
    lane: Lane = "events"
    lands_files: bool = True
    """False when it wants no rows at all: tasks then decode and count, and land nothing."""
    keeps_files: bool = False
    """Whether the files that land become its own: then they are compressed and have statistics, for those who read
    them for years. Else they are written for one who reads them once, soon."""
    keeps_progress: bool = False
    """Whether `applied_lsn` answers with what stands beside the data, written in the same transaction."""
    atomic_across_tables: bool = False
    """Whether a reader sees all tables of a batch change at once."""
    batching: Batching = Batching()
    in_flight: int = 1
    """How many batches may be accepted and not durable yet (`WriteResult.accepted`)."""
    spark: SparkNeeds = SparkNeeds()

    @property
    def materializes(self) -> bool:
        return self.kind == "tables"
