"""Which of the columns that a destination holds each column of the source is, and what is to be altered (SEMANTICS 18).

A destination follows columns by their attribute numbers: a column that was renamed is the same, one that was dropped
and added again under its old name is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from walrelay.changes.dialect import Dialect
from walrelay.model.retyping import SourceType, keeps_values, source_type
from walrelay.model.schema import Column

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|BIGNUMERIC|NUMBER)\((\d+),\s*(\d+)\)", re.IGNORECASE)
"""What destinations call it."""


@dataclass(frozen=True, slots=True)
class HeldColumn:
    """A column as the destination has it."""

    name: str
    attnum: int
    """In Postgres; 0 where that is not known."""
    type: str
    added: bool = False
    """Came after rows were there: in those its value is not known, and NULL here."""
    source_type: SourceType = ""
    """In Postgres; empty where that is not known. The destination's own may hide that it has changed."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a column should be, and what it is now, if it is there."""

    column: Column
    type: str
    """What the destination calls its type."""
    held: HeldColumn | None

    def becomes(self) -> HeldColumn:
        column = self.column
        attnum = column.attnum or (self.held.attnum if self.held else 0)
        added = self.held is None or self.held.added
        return HeldColumn(column.name, attnum, self.type, added, source_type(column.type))

    @property
    def is_told(self) -> bool:
        """Whether what is here, and changes, are enough to know what older rows hold."""
        if self.held is None:
            return not self.column.filled
        before, now = self.held, self.becomes()
        if before.source_type and not keeps_values(before.source_type, now.source_type):
            return False
        return before.type == now.type or is_wider(before.type, now.type)


def held_columns(columns: Iterable[Column], dialect: Dialect) -> tuple[HeldColumn, ...]:
    """A new table's."""
    return tuple(
        HeldColumn(one.name, one.attnum, dialect.column_type(one), source_type=source_type(one.type)) for one in columns
    )


def match_held(columns: tuple[Column, ...], held: tuple[HeldColumn, ...], dialect: Dialect) -> list[Wanted]:
    """Which of the held columns each one is: by attribute number where both have one, else by name."""
    by_number = {one.attnum: one for one in held if one.attnum}
    by_name = {one.name: one for one in held}
    taken = {found.name for column in columns if (found := by_number.get(column.attnum))}
    matched = []
    for column in columns:
        found = by_number.get(column.attnum)
        if found is None:
            named = by_name.get(column.name)
            is_same = named is not None and named.name not in taken and not (named.attnum and column.attnum)
            found = named if is_same else None
        matched.append(Wanted(column, dialect.column_type(column), found))
    return matched


def is_wider(before: str, now: str) -> bool:
    """Whether it is a decimal with more digits before the point, and as many after it."""
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    return old is not None and new is not None and old[2] == new[2] and int(old[1]) <= int(new[1])
