"""What a format of tables is asked: all that is different between a lake of Delta tables and one of Iceberg tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walrelay.changes.dialect import Dialect
from walrelay.changes.rows import LandedFile
from walrelay.changes.shapes import HeldColumn
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE, SOURCE, PIPELINE, KEY = "walrelay.table", "walrelay.source", "walrelay.pipeline", "walrelay.key"
COPIED, SHAPE_LSN, SHAPE_VERSION = "walrelay.copied_lsn", "walrelay.shape_lsn", "walrelay.shape_version"
"""Properties by which a table says what is in it."""


@dataclass(frozen=True)
class Place:
    """Where a table stands, in the names that the lake has for its schema and for it."""

    schema: str
    name: str


@dataclass(frozen=True)
class Facts:
    """What a table says of itself."""

    properties: Mapping[str, str]
    columns: tuple[HeldColumn, ...]
    applied: int | None
    """The position that the application asked for has reached; 0 where it has only copied."""
    has_rows: bool


@dataclass(frozen=True)
class Held:
    """A table of ours."""

    place: Place
    facts: Facts

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


@dataclass(frozen=True)
class Reached:
    """What a commit of changes says, beside them."""

    app: str
    """Who writes: a table's progress is that of one pipeline."""
    lsn: Lsn
    committed_at: str
    """When the last of the changes was committed at the source."""


class LakeFormat(ABC):
    """One lake's tables. A table is written by one thread at a time, and by nobody else but those who only rewrite what
    it holds. Every method that writes makes one commit, and may be repeated."""

    title: str
    """What people call it."""
    dialect: Dialect
    session_settings: Mapping[str, str] = {}
    """For every Spark session that writes."""

    @abstractmethod
    def place(self, name: TableName) -> Place:
        """Where a table of this name belongs."""

    @abstractmethod
    def places(self) -> Iterable[Place]:
        """Where tables stand, whosever they are."""

    @abstractmethod
    def shown(self, place: Place) -> str:
        """The place, for people."""

    @abstractmethod
    def sql_name(self, place: Place) -> str:
        """What Spark calls the table."""

    @abstractmethod
    def read(self, place: Place, app: str) -> Facts | None:
        """None when there is no table."""

    @abstractmethod
    def create(self, place: Place, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        """Make a table without rows, with these properties."""

    @abstractmethod
    def replace(
        self,
        spark: SparkSession,
        place: Place,
        schema: TableSchema,
        app: str,
        marks: Mapping[str, str],
        files: Iterable[LandedFile],
    ) -> None:
        """Take the landed files, which become the table's own, in place of all that was there."""

    @abstractmethod
    def alter(self, spark: SparkSession, held: Held, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        """Give the table these columns, by attribute number, and these properties."""

    @abstractmethod
    def move(self, spark: SparkSession, old: Place, new: Place) -> None:
        """The table, to a place where none stands."""

    @abstractmethod
    def commit(self, spark: SparkSession, held: Held, reached: Reached, write: Callable[[], None]) -> None:
        """Let `write` run its statement, in this session, so that what it writes and the position reached become
        visible in one commit."""

    @abstractmethod
    def maintain(self, spark: SparkSession, held: Held) -> None:
        """Make few files of many, and remove what no reader needs any more. In several commits, none of which changes
        a row or the position reached."""

    @abstractmethod
    def forget(self, spark: SparkSession, held: Held, app: str) -> None:
        """The table has no changes any more: it is to be copied anew. Its rows stay."""
