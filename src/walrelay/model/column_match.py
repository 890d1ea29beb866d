"""Which column of one shape of a table is which of another: by attribute number, never by name alone (SEMANTICS 17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from walrelay.model.schema import Column

_NO_END: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Matched:
    """For each wanted column its place among the others, or None where they lack it."""

    places: tuple[int | None, ...]
    doubts: tuple[tuple[int, int], ...]
    """(wanted, other) that may or may not be the same column: the number of one of them is not known."""


def match_columns(wanted: Sequence[Column], others: Sequence[Column]) -> Matched:
    """By number where both know one, else by name, unless the order of the columns says that it is another one.

    Where neither has a number, as in a shape that was kept without, only names are left to go by.
    """
    by_number = {column.attnum: place for place, column in enumerate(others) if column.attnum}
    by_name = {column.name: place for place, column in enumerate(others)}
    mine, theirs = _bounds(wanted), _bounds(others)
    places = [by_number.get(column.attnum) for column in wanted]
    taken = {place for place in places if place is not None}
    for index, column in enumerate(wanted):
        place = by_name.get(column.name) if places[index] is None else None
        if place is not None and place not in taken and _may_be_same(mine[index], theirs[place]):
            places[index] = place
            taken.add(place)
    doubts = tuple(
        (index, place)
        for index, found in enumerate(places)
        if found is None
        for place, other in enumerate(others)
        if place not in taken
        and bool(wanted[index].attnum) != bool(other.attnum)
        and _may_be_same(mine[index], theirs[place])
    )
    return Matched(tuple(places), doubts)


def _bounds(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """The lowest and highest number that each column can have: they come in the order of their numbers."""
    lowest, low = [], 0
    for column in columns:
        low = column.attnum or low + 1
        lowest.append(low)
    highest, high = [], _NO_END
    for column in reversed(columns):
        high = column.attnum or high - 1
        highest.append(high)
    return list(zip(lowest, reversed(highest), strict=True))


def _may_be_same(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) <= min(one[1], other[1])
