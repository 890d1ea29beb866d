"""What a batch of changes comes to, in plain Python: the reference that the SQL of every lane is held equal to.

Of each key only what happened last counts. A value that the stream left out (unchanged TOAST) is taken from the old row
where that is whole, else from an earlier change of the same row within the batch, whatever keys it had meanwhile. What
is then still lacking stands in the destination, under the key that the row had there: its `origin`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from walrelay.model.changes import Change

Key = tuple[Hashable, ...]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Put:
    """A row that is there in the end."""

    row: Row
    lacking: frozenset[str] = frozenset()
    """Columns whose value was not sent."""
    origin: Key | None = None
    """The key that the row has in the destination; None when it came within the batch."""


@dataclass
class Latest:
    """What a batch comes to for a table whose rows have a key."""

    is_truncated: bool = False
    """Whether everything that was there before the batch has gone."""
    puts: dict[Key, Put] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)
    """Keys that rows have left, and under which there is nothing in the end."""

    def put(self, key: Key, put: Put) -> None:
        self.puts[key] = put
        self.gone.discard(key)

    def take(self, key: Key) -> None:
        self.puts.pop(key, None)
        self.gone.add(key)


def latest(changes: Iterable[Change], key: tuple[str, ...]) -> Latest:
    """What the changes of one table, in their order, lead to."""
    found = Latest()
    for change in changes:
        new, old = change.row or {}, change.old or {}
        match change.op:
            case "truncate":
                found = Latest(is_truncated=True)
            case "insert":
                # One that lacks values is an update by which a row came into the publication's row filter.
                found.put(_key(new, key), Put(new, frozenset(change.unchanged)))
            case "update":
                was = _key(old or new, key)
                put = _updated(change, found.puts.get(was, Put({}, frozenset(new), origin=was)))
                found.take(was)
                found.put(_key(new, key), put)
            case "delete":
                found.take(_key(old, key))
    return found


def _updated(change: Change, before: Put) -> Put:
    """The row after the change, with what was left out taken from where it is."""
    left_out = set(change.unchanged)
    known = dict(change.row or {})
    if change.old_kind == "row" and change.old is not None:
        return Put({**known, **{name: change.old[name] for name in left_out}}, origin=before.origin)
    found = left_out - before.lacking
    lacking = frozenset(left_out & before.lacking)
    return Put({**known, **{name: before.row[name] for name in found}}, lacking, before.origin)


def net(changes: Iterable[Change]) -> tuple[bool, Counter[Key]]:
    """Of a table without a key: whether it was truncated, and how many more of each row there are then, or fewer."""
    is_truncated, rows = False, Counter[Key]()
    for change in changes:
        if change.op == "truncate":
            is_truncated, rows = True, Counter()
            continue
        old = change.old or {}
        if change.row is not None:
            left_out = {name: old[name] for name in change.unchanged}
            rows[tuple({**change.row, **left_out}.values())] += 1
        if change.op != "insert":
            rows[tuple(old.values())] -= 1
    return is_truncated, Counter({row: count for row, count in rows.items() if count})


def _key(row: Row, names: tuple[str, ...]) -> Key:
    return tuple(row[name] for name in names)
