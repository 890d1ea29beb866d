"""Finds out, for the log's writer, which columns a Relation message speaks of (SEMANTICS 17)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from walrelay.capture.sightings import SightingBook, Stay, Told
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.sightings import LookTime, NamedColumn, Sighting, attribute_numbers
from walrelay.model.visibility import visible

if TYPE_CHECKING:
    from walrelay.wire.pgoutput import Relation

Look = Callable[[Sequence[TableId] | None], tuple[Sequence[Sighting], LookTime]]
"""Looks at these tables, or at all that are published, now."""
VISIBLE_SECONDS = 5.0
"""A commit is decoded when it is written; it becomes visible a moment later, or when a synchronous standby has it."""

_ANY_TABLE: TableId = 0


class ColumnNumbers:
    """Best first: what the DDL event trigger told, then two looks at the catalog around the message."""

    def __init__(self, book: SightingBook, look: Look) -> None:
        self._book = book
        self._look = look
        book.seen(*look(None))

    def told(self, told: Told) -> None:
        """The trigger's word, in the order of the stream."""
        self._book.told(told)

    def distrust(self, lsn: Lsn, xid: int) -> None:
        """The trigger has failed to say what a command did to whom: until the next look it tells nothing."""
        self._book.told(Told(_ANY_TABLE, lsn, (), xid))

    def of(self, relation: Relation, commit_lsn: Lsn, xid: int) -> tuple[int, ...] | None:
        """The attribute numbers of the message's columns; None when they cannot be told for certain."""
        columns = tuple(NamedColumn(one.name, one.type, one.modifier) for one in relation.columns)
        after = self._after(relation.id, commit_lsn, xid)
        if after is None:
            return None  # it is gone
        before = self._book.before(relation.id, commit_lsn)
        told = self._told_numbers(relation.id, columns, before, after)
        if told is not None:
            return told
        return attribute_numbers(columns, before.sighting if before else None, after.sighting, xid=xid)

    def _after(self, table: TableId, commit_lsn: Lsn, xid: int) -> Stay | None:
        """A look from after the message; the first one that is good enough is taken now, if need be."""
        deadline = time.monotonic() + VISIBLE_SECONDS
        while (found := self._book.after(table, commit_lsn, xid)) is None:
            sightings, looked = self._look([table])
            self._book.seen(sightings, looked)
            if not sightings or time.monotonic() > deadline:
                break
            if not visible(xid, looked.visible):
                time.sleep(0.01)
        return found

    def forget(self, durable_lsn: Lsn) -> None:
        self._book.forget(durable_lsn)

    def _told_numbers(
        self, table: TableId, columns: tuple[NamedColumn, ...], before: Stay | None, after: Stay
    ) -> tuple[int, ...] | None:
        """By the trigger, when it was there all the time: then what it said last holds, or what was seen before."""
        if not after.sighting.trigger or before is None or before.sighting.trigger != after.sighting.trigger:
            return None
        failed, told = self._book.last_told(_ANY_TABLE), self._book.last_told(table)
        if failed is not None and _is_news(failed, before.last):
            return None
        known = (
            {one: number for number, one in told.columns}
            if told is not None and _is_news(told, before.last)
            else {NamedColumn(one.name, one.type, one.modifier): n for n, one in before.sighting.live.items()}
        )
        numbers = tuple(known.get(one, 0) for one in columns)
        return numbers if all(numbers) and list(numbers) == sorted(set(numbers)) else None


def _is_news(told: Told, looked: LookTime) -> bool:
    """Whether it tells what a look has not seen: the commit came later, or was written but not yet visible."""
    return told.lsn > looked.ended or (told.xid != 0 and not visible(told.xid, looked.visible))
