"""The one place that decides what Postgres is told it may forget (SEMANTICS 3)."""

from __future__ import annotations

from collections.abc import Iterable

from walrelay.config.choices import Ack
from walrelay.model.lsn import Lsn


def acknowledged(ack: Ack, *, created: Lsn, entries_end: Lsn, head: Lsn, readers: Iterable[Lsn]) -> Lsn:
    """How far the slot may be confirmed.

    `entries_end` is the end of the last durable segment. `head` is it, or a later position up to which the source had
    nothing for us when nothing at all was in flight; it is durable too. `readers` are the positions that registered
    readers have durably applied; one that has applied the last segment has applied all up to the head. Without a
    reader nothing was applied: `destination` then holds the slot where the log began.
    """
    if ack == "log":
        return head
    applied = [head if position >= entries_end else position for position in readers]
    return max(created, min(applied, default=created))
