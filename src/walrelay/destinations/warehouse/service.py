"""What a warehouse is asked: all that is different between BigQuery and Snowflake."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa

from walrelay.changes.dialect import Dialect
from walrelay.destinations.warehouse.names import table_place
from walrelay.destinations.warehouse.plan import Plan
from walrelay.destinations.warehouse.state import Alteration, Kept, TableState
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import Column


@dataclass(frozen=True, slots=True)
class Stage:
    """A table for what is loaded and not taken yet, of one attempt alone: a load that a dead run has begun ends in a
    table that nobody looks at any more."""

    place: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table as it is to be made."""

    place: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Names, at the source, of the primary key's columns, which is declared and not enforced."""
    sort: tuple[str, ...]
    """By which rows are kept together, so that a batch finds the rows that it replaces by reading few: the key's."""


class Reader(Protocol):
    """Shows one state."""

    def fixed(self, source: str, table: TableId) -> Kept | None:
        """Where the table is; what is read of it then is what it holds there."""

    def rows(self, place: str, names: Sequence[str], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """What the table holds in the columns of these names, as c0…, in pieces."""


class Warehouse(ABC):
    """One dataset or schema. Every method may be repeated; several threads call it, for different tables. Errors are
    ours, by the service's own table of error classes."""

    title: ClassVar[str]
    """What people call the service."""
    dialect: Dialect
    array_nulls: ClassVar[bool]
    """Whether arrays can hold NULLs, and be NULL."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """Where the tables are, for people."""

    # ------------------------------------------------------------------------------------------------ names and values

    @abstractmethod
    def here(self, name: str) -> str:
        """What a column or an attribute is called here."""

    def told_apart(self, name: str) -> str:
        """The same for names that are one to the service."""
        return self.here(name)

    def place(self, name: TableName) -> str:
        """Where a table of this name belongs."""
        return table_place(name)

    @abstractmethod
    def refuse_name(self, place: str, name: TableName) -> None:
        """Raise when a table cannot have this name here."""

    @abstractmethod
    def landed(self, column: Column, value: str) -> str:
        """Spark SQL for a value as a load file has it."""

    @abstractmethod
    def stage_type(self, column: Column) -> str:
        """The type of a stage's column that takes it."""

    # ---------------------------------------------------------------------------------------------------------- life

    @abstractmethod
    def check(self) -> None:
        """That it is there, is the right one, and may be written to; changes nothing."""

    @abstractmethod
    def identity(self) -> str | None:
        """Its own id; None before it was given one."""

    @abstractmethod
    def found(self, id_: str) -> str:
        """Give it this id if it has none; the one that it then has."""

    @abstractmethod
    def close(self) -> None: ...

    # --------------------------------------------------------------------------------------------------------- state

    @abstractmethod
    def kept(self, source: str) -> list[Kept]:
        """What is known of the tables of this source."""

    @abstractmethod
    def read(self, source: str, table: TableId) -> Kept | None: ...

    @abstractmethod
    def begin(self, state: TableState, applied: Lsn | None) -> None:
        """The state of a table that was just made, in place of any other; None for one that is to be made."""

    @abstractmethod
    def put(self, state: TableState) -> None:
        """Another state of a table, which is as far as it was."""

    @abstractmethod
    def forget(self, source: str, table: TableId) -> None:
        """It is to be copied: no batch is taken any more, also none that is being taken now."""

    @abstractmethod
    def disown(self, source: str, table: TableId) -> None:
        """Nothing is known of the table any more."""

    @abstractmethod
    def owners(self, places: Collection[str]) -> Mapping[str, str]:
        """Which of these places have tables that a source of any pipeline's has: the source's id."""

    # -------------------------------------------------------------------------------------------------------- tables

    @abstractmethod
    def columns(self, place: str) -> frozenset[str] | None:
        """Names here; None when there is no such table."""

    @abstractmethod
    def replace(self, table: NewTable, stage: Stage | None) -> None:
        """Make the table with the rows of the stage, which has its columns as n0…, in place of whatever was there;
        readers see the old one or the whole new one."""

    @abstractmethod
    def alter(self, place: str, step: Alteration) -> None: ...

    @abstractmethod
    def move(self, old: str, new: str) -> None: ...

    # -------------------------------------------------------------------------------------------------------- writing

    @abstractmethod
    def load(self, stage: Stage, files: Sequence[Path]) -> None:
        """Make the stage, with the rows of these Parquet files."""

    @abstractmethod
    def drop(self, stage: Stage) -> None: ...

    @abstractmethod
    def sweep(self, prefix: str) -> None:
        """Drop the stages whose names begin so."""

    @abstractmethod
    def apply(self, plan: Plan) -> tuple[Lsn | None, str]:
        """All of it in one transaction, or nothing when the table is elsewhere than where the batch begins; the
        position at which it then is, and of which copy."""

    # -------------------------------------------------------------------------------------------------------- reading

    @abstractmethod
    def looking(self) -> AbstractContextManager[Reader]:
        """One state of it, for as long as somebody looks."""

    @abstractmethod
    def restored(self, column: Column, value: str) -> str:
        """DuckDB SQL for a value that was read, in the type that DuckDB has for the column."""
