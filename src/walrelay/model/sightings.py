"""Which column is which when the catalog is newer than the message that names it (SEMANTICS 17).

A Relation message gives names and types, in the order of the attribute numbers, but not the numbers. The catalog gives
them, as they are when it is read. Two looks at the catalog, one from before the message and one from after it, bound
what the table can have looked like in between: Postgres never uses a number twice, gives new ones in order, keeps those
of dropped columns, and writes a column's row anew with whatever touches it. If just one assignment fits, it is the
truth; if several do, nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column as a Relation message has it."""

    name: str
    type: int
    modifier: int


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A row of pg_attribute."""

    attnum: int
    name: str
    type: int
    modifier: int
    written_by: int
    """The transaction that wrote the row last: one that is the same was not touched."""
    sent: bool
    """Whether the publication gives it."""
    dropped: bool = False

    def is_named(self, column: NamedColumn) -> bool:
        return (self.name, self.type, self.modifier) == (column.name, column.type, column.modifier)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A table's columns, dropped ones too, as the catalog had them at one moment."""

    table: TableId
    columns: tuple[SeenColumn, ...]
    made_by: int
    """The transaction that created the table."""
    publication: str = ""
    """Marks what the publication gives of the table; one that is the same was not altered."""
    trigger: str = ""
    """Marks the DDL event trigger, when it is there and enabled: it has told of every change since it looked so."""

    @property
    def live(self) -> dict[int, SeenColumn]:
        return {one.attnum: one for one in self.columns if not one.dropped}

    @property
    def highest(self) -> int:
        return max((one.attnum for one in self.columns), default=0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Sighting:
        """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{**body, "columns": tuple(SeenColumn(**one) for one in body["columns"])})


@dataclass(frozen=True, slots=True)
class LookTime:
    """When a look at the catalog was taken."""

    began: Lsn
    """Where the WAL ended before it."""
    ended: Lsn
    """And after it."""
    visible: str
    """`pg_current_snapshot()` before it: it has seen at least what these transactions did."""


def attribute_numbers(
    columns: Sequence[NamedColumn], before: Sighting | None, after: Sighting, *, xid: int
) -> tuple[int, ...] | None:
    """The attribute number of each column of a message that was written between two looks, by the transaction `xid`;
    None when they cannot be told for certain. Without an earlier look the table was made in between."""
    if before is not None and before.publication != after.publication:
        return None  # which columns were sent at the time is not known
    if before is None and _is_untouched(after, xid):
        before = after
    found = _Candidates(columns, before, after).assignments()
    return found[0] if len(found) == 1 else None


def _is_untouched(sighting: Sighting, xid: int) -> bool:
    """Whether the table looks as it was made, and always has; its own maker may have looked at it half made."""
    return sighting.made_by != xid and all(
        one.written_by == sighting.made_by and not one.dropped for one in sighting.columns
    )


class _Candidates:
    """The columns that the table may have had, in order, and which of them fit the message."""

    def __init__(self, columns: Sequence[NamedColumn], before: Sighting | None, after: Sighting) -> None:
        self._columns = tuple(columns)
        self._old = {} if before is None else before.live
        self._highest = 0 if before is None else before.highest
        # What was dropped before the first look cannot have come back.
        self._all = tuple(
            one
            for one in after.columns
            if (one.dropped and (one.attnum > self._highest or self._was_sent(one.attnum)))
            or (not one.dropped and one.sent)
        )

    def _was_sent(self, attnum: int) -> bool:
        return attnum in self._old and self._old[attnum].sent

    def assignments(self) -> list[tuple[int, ...]]:
        """Those that fit: none, one, or (never more than) two."""

        @cache
        def fit(place: int, candidate: int, open_end: bool) -> tuple[tuple[int, ...], ...]:
            """Ways to go on from a column of the message and a candidate. After the first new column that was not there
            yet, `open_end` is False: no later one can have been there."""
            if candidate == len(self._all):
                return ((),) if place == len(self._columns) else ()
            one = self._all[candidate]
            is_new = one.attnum > self._highest
            found: list[tuple[int, ...]] = []
            if place < len(self._columns) and (open_end or not is_new) and self._fits(one, self._columns[place]):
                found += ((one.attnum, *rest) for rest in fit(place + 1, candidate + 1, open_end))
            if one.dropped or is_new:
                found += fit(place, candidate + 1, open_end and one.dropped)
            return tuple(found[:_SEVERAL])

        return list(fit(0, 0, True))

    def _fits(self, one: SeenColumn, column: NamedColumn) -> bool:
        """One that nobody touched between the looks had its name and type all the time."""
        before = self._old.get(one.attnum)
        if before is not None and not one.dropped and before.written_by == one.written_by:
            return one.is_named(column)
        return True
