"""What a table looks like: columns, their resolved Postgres types, the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName

TypeKind = Literal["base", "enum", "composite", "array", "range", "multirange", "vector_array"]
"""`vector_array` is `int2vector`/`oidvector`: an array in its bytes, but with a lower bound of 0 by nature."""
ReplicaIdentity = Literal["default", "nothing", "full", "index"]


@dataclass(frozen=True, slots=True)
class PgType:
    """A Postgres type, resolved down to types that have bytes of their own: domains are replaced by their base."""

    oid: int
    name: str
    kind: TypeKind = "base"
    schema: str = "pg_catalog"
    extension: str | None = None
    modifier: int = -1
    element: PgType | None = None
    """Of arrays the element, of ranges the bound, of multiranges the range."""
    fields: tuple[TypeField, ...] = ()
    """Of composites."""
    dimensions: int = 1
    """Of arrays, as declared; Postgres does not enforce it."""
    has_binary: bool = True
    """Whether the type, with all its parts, has a binary output function."""
    scale: int = 2
    """Of money: digits after the point, which the server's lc_monetary decides."""
    display: str = ""
    """As `format_type` prints it, e.g. `numeric(10,2)[]`."""

    def __str__(self) -> str:
        return self.display or self.name


@dataclass(frozen=True, slots=True)
class TypeField:
    """An attribute of a composite type."""

    name: str
    type: PgType


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the publication gives it."""

    name: str
    type: PgType
    nullable: bool = True
    attnum: int = 0
    as_text: bool = False
    """Read through a cast to text on the source: the type has no bytes that we, or Postgres, can give."""
    filled: bool = False
    """Rows that were there before the column was may hold something in it that no change has brought: a default."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's shape, holding only the columns that are replicated."""

    id: TableId
    name: TableName
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    row_filter: str | None = None
    """SQL of the publication's WHERE, as Postgres prints it."""
    leaves: tuple[TableLeaf, ...] = field(default=())
    """What holds the rows: the table itself, or the leaves of a partitioned one."""
    identity: ReplicaIdentity = "default"
    """What updates and deletes say about the row they change."""
    identity_columns: tuple[str, ...] = ()
    """The columns by which a changed row is named: all of them when the identity is `full`."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns by which a destination tells rows apart; none when rows may be equal.

        Those by which the stream names a row. With `full` it names all of them, and with `nothing` it tells of no row
        that goes: there the primary key does, which is empty when rows of it may meet for a moment (DEFERRABLE).
        """
        return self.identity_columns if self.identity in ("default", "index") else self.primary_key

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A table's shape from a commit on. Versions of a table count up from 1."""

    schema: TableSchema
    version: int
    from_lsn: Lsn
    doubt: str = ""
    """Why it is not known which of its columns is which of the version before; empty when it is. Its columns then have
    no attribute numbers, and whoever holds older rows must have them copied again."""


@dataclass(frozen=True, slots=True)
class TableLeaf:
    """A relation with storage, and its size when it was looked at."""

    id: TableId
    name: TableName
    bytes: int
    """Of its main fork, which ctid ranges cut."""
    stored_bytes: int
    """With TOAST, which comes along when rows are read."""
