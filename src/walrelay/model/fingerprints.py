"""What the catalog said about a table when it was copied, and what has happened to it since that no message tells
(SEMANTICS 18).

Every mark is of the kind that changes with each alteration (an oid made anew, the transaction that wrote a row), so
that what was altered there and back is found, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from walrelay.model.names import TableId, TableName
from walrelay.model.sightings import SeenColumn, Sighting


@dataclass(frozen=True, slots=True)
class Storage:
    """A relation that holds rows of the table: itself, or a leaf of a partitioned one."""

    id: TableId
    filenode: int
    attached_by: int
    """The transaction that made it a partition; 0 for none."""
    toast: int = 0
    """The relation that holds its large values; 0 for none. An ALTER TABLE that writes the rows anew makes another one;
    TRUNCATE, VACUUM FULL and CLUSTER keep it."""


@dataclass(frozen=True, slots=True)
class Membership:
    """How the publication has the table."""

    publication: str
    """The publication itself: what it publishes."""
    member: str
    """The table's place in it: a stay has a beginning and an end."""
    filter: str | None = None
    columns: str | None = None
    by_all: bool = False
    """Not by its name, but with all tables, or all of a schema."""

    def mark(self) -> str:
        return "|".join(map(str, (self.publication, self.member, self.filter, self.columns)))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A table in the catalog at one moment."""

    name: TableName
    sighting: Sighting
    membership: Membership
    expressions: tuple[tuple[int, int], ...]
    """Of generated columns: attribute number, and the oid of the expression."""
    storage: tuple[Storage, ...]
    labels: tuple[tuple[int, str, int], ...]
    """Of the enum types it uses: oid, label, and who wrote it."""
    attributes: tuple[tuple[Any, ...], ...]
    """Of the composite types it uses."""
    oldest_xid: int
    """All transactions before this had ended."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Fingerprint:
        """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            name=TableName(**body["name"]),
            sighting=Sighting.from_json(body["sighting"]),
            membership=Membership(**body["membership"]),
            expressions=tuple((a, b) for a, b in body["expressions"]),
            storage=tuple(Storage(**one) for one in body["storage"]),
            labels=tuple((a, b, c) for a, b, c in body["labels"]),
            attributes=tuple(tuple(one) for one in body["attributes"]),
            oldest_xid=int(body["oldest_xid"]),
        )


@dataclass(frozen=True, slots=True)
class Doubts:
    """What happened to a table between two fingerprints."""

    reasons: tuple[str, ...] = ()
    """What changed rows, or hid changes, and no message told."""
    replaced: tuple[Storage, ...] = ()
    """Relations whose files are new, which may have changed nothing (VACUUM FULL) or all: their rows must say. With
    what they were before."""
    attached: tuple[Storage, ...] = ()
    """Partitions that are new: if they had rows when they came, nobody told of those."""


def doubts(before: Fingerprint, now: Fingerprint) -> Doubts:
    """What of the difference no message explains. Columns are not compared: whoever holds the table follows them."""
    reasons = [*_membership(before, now), *_values(before, now)]
    old, new = {one.id: one for one in before.storage}, {one.id: one for one in now.storage}
    gone = [one for one in old if one not in new or new[one].attached_by != old[one].attached_by]
    if gone:
        reasons.append("partitions were dropped or detached")
    replaced = [one for id_, one in new.items() if id_ in old and id_ not in gone and old[id_].filenode != one.filenode]
    if replaced and (
        _is_touched(before.sighting, now.sighting) or any(_is_rewritten(old[one.id], one) for one in replaced)
    ):
        reasons.append("its rows were written anew by an ALTER TABLE")
    attached = tuple(one for id_, one in new.items() if id_ not in old)
    return Doubts(tuple(reasons), tuple(replaced), attached)


def _is_rewritten(before: Storage, now: Storage) -> bool:
    """Whether an ALTER TABLE has written its rows anew; of a relation without large values nobody can say."""
    return bool(before.toast and now.toast) and before.toast != now.toast


def _membership(before: Fingerprint, now: Fingerprint) -> Iterator[str]:
    was, is_ = before.membership, now.membership
    if was.publication != is_.publication:
        yield "the publication was altered"
    elif was.filter != is_.filter:
        yield "the publication's row filter has changed"
    elif was.columns != is_.columns:
        yield "the publication's column list has changed"
    elif was.member != is_.member:
        yield "it was out of the publication for a while"


def _values(before: Fingerprint, now: Fingerprint) -> Iterator[str]:
    expressions = dict(now.expressions)
    if any(attnum in expressions and expressions[attnum] != oid for attnum, oid in before.expressions):
        yield "the expression of a generated column has changed"
    labels = {oid: (label, by) for oid, label, by in now.labels}
    if any(oid in labels and labels[oid] != (label, by) for oid, label, by in before.labels):
        yield "a value of an enum type was renamed"
    types = {one[0] for one in before.attributes} & {one[0] for one in now.attributes}
    if {one for one in before.attributes if one[0] in types} != {one for one in now.attributes if one[0] in types}:
        yield "a composite type was altered"


def _is_touched(before: Sighting, now: Sighting) -> bool:
    """Whether a column that is still there was altered."""
    there = now.live
    return any(
        one.attnum in there and there[one.attnum].written_by != one.written_by
        for one in before.columns
        if not one.dropped
    )


def is_same(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether nothing at all was altered between the two."""
    return replace(one, oldest_xid=0) == replace(other, oldest_xid=0)


def same_columns(before: Fingerprint, now: Fingerprint) -> bool:
    """Whether nobody has touched the table's columns, nor its name."""

    def marks(columns: tuple[SeenColumn, ...]) -> list[tuple[int, int, bool]]:
        return [(one.attnum, one.written_by, one.dropped) for one in columns]

    return before.name == now.name and marks(before.sighting.columns) == marks(now.sighting.columns)
