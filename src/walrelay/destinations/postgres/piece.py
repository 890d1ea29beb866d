"""Some changes of one table under one schema version, in order, as columns; and which column of the table is which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.shapes import match_held
from walrelay.decode.base import Tally
from walrelay.decode.retarget import retarget
from walrelay.destinations.holdings import Shape
from walrelay.destinations.postgres.collapse import (
    NOWHERE,
    TRUNCATE,
    UPDATE,
    Flags,
    Keys,
    Places,
    flags_of,
    number_keys,
    op_codes,
    take,
)
from walrelay.destinations.postgres.dialect import DIALECT
from walrelay.destinations.postgres.text import column_text, value_text
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.log.reader import TableBatch
from walrelay.model.schema import Column, PgType, TableSchema

PIECE_ROWS = 250_000
PIECE_BYTES = 128 * 1024 * 1024
"""Of Arrow data: a piece, as text, is in memory once."""
_PLAIN = frozenset(
    [
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "xid",
        "text",
        "varchar",
        "bpchar",
        "name",
        "uuid",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "bytea",
        "char",
        "money",
    ]
)
"""Types of which Postgres takes two values for equal only if their bytes are."""


def cut(batches: Iterable[TableBatch], piece_rows: int) -> Iterator[list[TableBatch]]:
    """Pieces of bounded size."""
    piece: list[TableBatch] = []
    count = size = 0
    for one in _sliced(batches, piece_rows):
        piece.append(one)
        count += one.batch.num_rows
        size += one.batch.nbytes
        if count >= piece_rows or size >= PIECE_BYTES:
            yield piece
            piece, count, size = [], 0, 0
    if piece:
        yield piece


def _sliced(batches: Iterable[TableBatch], most: int) -> Iterator[TableBatch]:
    for one in batches:
        for begin in range(0, one.batch.num_rows, most):
            yield TableBatch(one.version, one.batch.slice(begin, most))


@dataclass(frozen=True)
class Fit:
    """How changes of a schema version fit a table."""

    schema: TableSchema
    shape: Shape

    @property
    def theirs(self) -> list[int | None]:
        """For each of the table's columns its place in the changes; None where they have no such column."""
        places = {column.name: place for place, column in enumerate(self.schema.columns)}
        matched = match_held(self.schema.columns, self.shape.columns, DIALECT)
        found = {one.held.name: places[one.column.name] for one in matched if one.held}
        return [found.get(one.name) for one in self.shape.columns]

    @property
    def key(self) -> tuple[int, ...]:
        """The columns by which rows are told apart, as places in the table; none when rows may be equal."""
        wanted, columns = set(self.schema.key_columns), self.schema.columns
        found = tuple(i for i, place in enumerate(self.theirs) if place is not None and columns[place].name in wanted)
        return found if len(found) == len(wanted) else ()


class Piece:
    """Changes after the last truncate among them."""

    def __init__(self, fit: Fit, batches: Sequence[TableBatch]) -> None:
        self.schema, self.shape = fit.schema, fit.shape
        self.theirs, self.key = fit.theirs, fit.key
        table = pa.Table.from_batches([one.batch for one in batches])
        self.changes = len(table)
        ops = op_codes(_array(table, "op"))
        truncates = np.flatnonzero(ops == TRUNCATE)
        self.is_truncated = bool(len(truncates))
        begin = int(truncates[-1]) + 1 if self.is_truncated else 0
        table = table.slice(begin)
        self.ops: npt.NDArray[np.int8] = ops[begin:]
        self.lsns = _array(table, "commit_lsn").to_numpy(zero_copy_only=False)
        self.old_kind = _array(table, "old_kind")
        self.has_old: Flags = self.old_kind.is_valid().to_numpy(zero_copy_only=False)
        self._new = _array(table, "row").flatten() if self.schema.columns else []
        self._old = _array(table, "old").flatten() if self.schema.columns else []
        self._unchanged = _array(table, "unchanged")
        self._resolved: dict[int, Places] = {}

    def __len__(self) -> int:
        return len(self.ops)

    def column(self, i: int) -> Column | None:
        place = self.theirs[i]
        return None if place is None else self.schema.columns[place]

    # --------------------------------------------------------------------------------------------------------- keys

    def keys(self, tally: Tally) -> Keys:
        places = [self._place(i) for i in self.key]
        new = [self._comparable(self._new[p], p, tally) for p in places]
        old = [self._comparable(self._old[p], p, tally) for p in places]
        return number_keys(new, old, self.has_old)

    def _place(self, i: int) -> int:
        place = self.theirs[i]
        assert place is not None, "a key's columns are there"
        return place

    def _comparable(self, array: pa.Array, place: int, tally: Tally) -> pa.Array:
        column = self.schema.columns[place]
        if isinstance(array.type, pa.BaseExtensionType):
            return array.storage
        if column.as_text or _is_flat(array.type):
            return array
        return value_text(retarget(array, column.type, tally), column.type)

    def unnamed(self) -> int:
        """How many rows that go are not named by the key; without one, not at all."""
        goes = self.ops != 0
        if not self.key:
            return int(np.count_nonzero(goes & ~self.has_old))
        lacking = np.zeros(len(self), bool)
        for i in self.key:
            lacking |= self._old[self._place(i)].is_null().to_numpy(zero_copy_only=False)
        return int(np.count_nonzero(goes & self.has_old & lacking))

    @property
    def has_loose_key(self) -> bool:
        """Whether Postgres may take keys for one that are two here."""
        return not all(_is_exact(self.schema.columns[self._place(i)]) for i in self.key)

    # ----------------------------------------------------------------------------------------------- what was not sent

    def lacking(self) -> dict[int, Flags]:
        """By column of the table, the changes that say nothing of it: values that were not sent again, and that the old
        row does not give either; and of columns that came later, all updates."""
        found: dict[int, Flags] = {}
        named = self._named_unchanged()
        for i, place in enumerate(self.theirs):
            lacks = self.ops == UPDATE if place is None else named.get(self.schema.columns[place].name)
            if lacks is None or not lacks.any():
                continue
            if place is not None:
                known = self._old[place].is_valid().to_numpy(zero_copy_only=False)
                if not self.key:
                    # Where policy made a NULL of it, the old row has it nevertheless.
                    known = known | flags_of(pc.equal(self.old_kind, "row"))
                told = lacks & known
                if told.any():
                    at = np.arange(len(self))
                    self._resolved[i] = np.where(told, at + len(self), at)
                lacks = lacks & ~known
            if lacks.any():
                found[i] = lacks
        return found

    def _named_unchanged(self) -> dict[str, Flags]:
        lists = self._unchanged
        if lists.null_count == len(lists):
            return {}
        names, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
        found: dict[str, Flags] = {}
        for name in pc.unique(names).to_pylist():
            marks = np.zeros(len(self), bool)
            marks[parents.filter(pc.equal(names, name)).to_numpy(zero_copy_only=False)] = True
            found[name] = marks
        return found

    # ------------------------------------------------------------------------------------------------------- values

    def new_text(self, i: int, places: Places, tally: Tally) -> pa.Array:
        """The new values of a column of the table at these places, as COPY takes them."""
        place = self.theirs[i]
        if place is None:
            return pa.nulls(len(places), pa.string())
        array, at = self._new[place], places
        if i in self._resolved:
            array = pa.chunked_array([array, self._old[place]]).combine_chunks()
            at = np.where(places == NOWHERE, NOWHERE, self._resolved[i][places])
        return self._text(take(array, at), place, tally)

    def old_text(self, i: int, places: Places, tally: Tally) -> pa.Array:
        place = self.theirs[i]
        if place is None:
            return pa.nulls(len(places), pa.string())
        return self._text(take(self._old[place], places), place, tally)

    def origin_text(self, i: int, places: Places, tally: Tally) -> pa.Array:
        """The key that rows had before these changes, which they have still where it has not changed."""
        place = self._place(i)
        both = pa.chunked_array([self._new[place], self._old[place]]).combine_chunks()
        at = np.where(self.has_old[places], places + len(self), places)
        return self._text(take(both, np.where(places == NOWHERE, NOWHERE, at)), place, tally)

    def _text(self, array: pa.Array, place: int, tally: Tally) -> pa.Array:
        column = self.schema.columns[place]
        if not column.as_text:
            is_key = column.name in self.schema.key_columns
            array = self._held(array, column, tally.for_keys() if is_key else tally)
        return column_text(array, column)

    def _held(self, array: pa.Array, column: Column, tally: Tally) -> pa.Array:
        where = {"table": str(self.schema.name), "column": column.name}
        try:
            return retarget(array, column.type, tally)
        except SpecialValueError as error:
            said = f"{error.message}, in column {column.name} of {self.schema.name}"
            raise type(error)(said, context={**error.context, **where}) from error
        except BadBytesError as error:
            said = f"{error.reason}, in column {column.name} of {self.schema.name}"
            raise BadBytesError(said, position=error.position, context={**error.context, **where}) from error


def _array(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _is_flat(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))


def _is_exact(column: Column) -> bool:
    type_: PgType = column.type
    if column.as_text:
        return False
    if type_.kind == "enum":
        return True
    return type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in _PLAIN
