"""What a destination says of the rows it holds, so that they can be compared with the source's; an ability of its own.

Rows are told apart, and summed up, by hashes of their text (`row_text`), which the source computes in the same way. A
range of keys is a range of their hashes: it holds the same rows on both sides whatever the types and collations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa
from psycopg import sql

from walrelay.changes.dialect import Dialect
from walrelay.destinations.base import DestinationContext
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import Column, TableSchema

HASH_BITS: Final = 60
"""Of a row's or a key's hash."""


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """The table's rows cut into 2^`bits` ranges by the hash of their key, or some of these ranges, or some keys."""

    bits: int
    chosen: tuple[int, ...] | None = None
    """The ranges that are asked for; None is all of them."""
    keys: frozenset[int] | None = None
    """Hashes of keys: their rows alone; None is all rows."""
    leaving_out: frozenset[int] = frozenset()
    """Hashes of keys whose rows do not count."""

    @property
    def shift(self) -> int:
        return HASH_BITS - self.bits

    def range_of(self, key: int) -> int:
        return key >> self.shift

    def asks_for(self, key: int) -> bool:
        """Whether a row with this key counts."""
        chosen = self.chosen is None or self.range_of(key) in self.chosen
        return chosen and (self.keys is None or key in self.keys) and key not in self.leaving_out


@dataclass(frozen=True, slots=True)
class RangeSum:
    """A range's rows: how many, and the sum of their hashes."""

    rows: int = 0
    hashes: int = 0

    def plus(self, rows: int, row_hash: int) -> RangeSum:
        return RangeSum(self.rows + rows, self.hashes + rows * row_hash)


Fingerprints = Mapping[int, RangeSum]
"""By range; those without rows may be left out."""


@dataclass(frozen=True, slots=True)
class HashedRow:
    """A row, as hashes and as text."""

    key: int
    row: int
    values: tuple[str | None, ...]
    """Of all columns, in the form that is hashed."""
    printed: tuple[str | None, ...]
    """Of all columns, as people read them."""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """How far a table is in the destination."""

    applied: Lsn | None
    """Every transaction that ends up to here is in it; None after a copy, until the first changes."""
    copied: Lsn | None
    """Which copy it is: where its snapshot was taken."""
    odd_columns: tuple[str, ...]
    """Columns of the source that it lacks, or has with another type: it cannot be compared like this."""
    is_there: bool = True
    """False when something is known of the table, but somebody has dropped it."""


class Look(Protocol):
    """One state of the destination, for as long as it is looked at. `schema` is the table as the source has it; columns
    are matched by attribute number, `key` are those whose hash is the row's key (all of them when rows may be
    equal)."""

    def identity(self) -> str | None:
        """Which destination this is; None when it keeps no id."""

    def copies(self) -> Mapping[TableId, Lsn | None]:
        """Which copy it has of each table of the source, as `HeldTable.copied` says it."""

    def held(self, schema: TableSchema) -> HeldTable | None:
        """Where the table stands; None when nothing is known of it."""

    def fingerprint(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> Fingerprints:
        """The sums of these ranges, computed inside the destination."""

    def rows(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> list[HashedRow]:
        """The rows of these ranges."""

    def replace_rows(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int], rows: pa.Table) -> int:
        """Put those of `rows` that have one of the `keys` in place of all rows that have one; the number put
        there. Only in a look for writing, at whose end it is durable; how far the table is does not change."""


@runtime_checkable
class Verifiable(Protocol):
    """A destination whose rows can be compared, also while a pipeline in another process writes to it."""

    dialect: Dialect
    """By which rows that are put right are read, as a copy is."""

    def looking(self, context: DestinationContext, *, writing: bool = False) -> AbstractContextManager[Look]:
        """Look at one state. Those who write wait meanwhile, so a look is short. `context` says whose tables are meant
        (`source_id`, `pipeline_name`) and how long to wait for others."""


@runtime_checkable
class HoldsLess(Protocol):
    """One of them whose types hold fewer values than DuckDB's do."""

    def unheld(self, column: Column) -> sql.Composable | None:
        """SQL of Postgres for «the source's value is one that policy treats», where the type has such values."""
