"""What a table of ours says of itself: in the comment of its view, which is replaced together with what it shows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from walrelay.changes.shapes import HeldColumn, Wanted, held_columns
from walrelay.destinations.clickhouse.dialect import DIALECT
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

MARK = '{"walrelay":'
"""How the comment begins."""
_FORMAT = 1
NOWHERE = Lsn(0)
_PLAIN = ("table", "source", "pipeline", "storage", "epoch", "last", "hashed")


@dataclass(frozen=True, slots=True)
class Stored:
    """A column as it is shown, and what it is called in the table behind the view: a name of ours, which it keeps."""

    held: HeldColumn
    name: str

    @property
    def marked(self) -> bool:
        """Whether a column beside it says that it is NULL."""
        return self.held.type.startswith("Array(")

    @property
    def mark(self) -> str:
        return f"{self.name}_null"


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one table, at one moment."""

    table: TableId
    source: str
    pipeline: str
    """Which one keeps it current; empty for a copy that nobody does."""
    storage: str
    """The table behind the view."""
    columns: tuple[Stored, ...]
    key: tuple[str, ...]
    """Names in storage, in the order of the key; none when rows may be equal."""
    shape: tuple[Lsn, int]
    """Since when, and in which version, it has its columns."""
    copied: Lsn | None
    """Where the snapshot of its copy was taken; None for a table that changes alone have made."""
    epoch: str
    """Another one for each copy: how far changes are is told of one alone."""
    last: int = 0
    """The number of the last column that storage was given."""
    since: Lsn = NOWHERE
    """How far changes must be recorded for the rows to be what is recorded: a truncate took effect before it was."""
    hashed: bool = True
    """Whether the numbers by which equal rows are found are of the columns that it has now."""

    def comment(self) -> str:
        body = {
            "walrelay": _FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "key": list(self.key),
            "shape": [str(self.shape[0]), self.shape[1]],
            "since": str(self.since),
            "copied": None if self.copied is None else str(self.copied),
            "columns": [{**asdict(one.held), "stored": one.name} for one in self.columns],
        }
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, comment: str) -> Facts:
        body: dict[str, Any] = json.loads(comment)
        return cls(
            body["table"],
            body["source"],
            body["pipeline"],
            body["storage"],
            tuple(_stored(one) for one in body["columns"]),
            tuple(body["key"]),
            (Lsn.parse(body["shape"][0]), body["shape"][1]),
            None if body["copied"] is None else Lsn.parse(body["copied"]),
            body["epoch"],
            body["last"],
            Lsn.parse(body["since"]),
            body["hashed"],
        )

    @property
    def held(self) -> tuple[HeldColumn, ...]:
        return tuple(one.held for one in self.columns)

    def stored(self, name: str) -> Stored:
        """The column of this name."""
        return next(one for one in self.columns if one.held.name == name)


def _stored(one: dict[str, Any]) -> Stored:
    return Stored(HeldColumn(**{name: value for name, value in one.items() if name != "stored"}), one["stored"])


def new_epoch() -> str:
    return uuid4().hex


def fresh_columns(schema: TableSchema) -> tuple[Stored, ...]:
    return tuple(Stored(one, f"c{i}") for i, one in enumerate(held_columns(schema.columns, DIALECT), 1))


def key_of(schema: TableSchema, columns: Iterable[Stored]) -> tuple[str, ...]:
    """The key's columns, as they are called in storage."""
    by_name = {one.held.name: one.name for one in columns}
    return tuple(by_name[name] for name in schema.key_columns)


def altered(facts: Facts, wanted: list[Wanted]) -> tuple[tuple[Stored, ...], int]:
    """The columns that a table has then, and the number of its last: those that stay keep their names in storage."""
    names = {one.held.name: one.name for one in facts.columns}
    last, found = facts.last, []
    for one in wanted:
        if one.held is not None:
            found.append(Stored(one.becomes(), names[one.held.name]))
        else:
            last += 1
            found.append(Stored(one.becomes(), f"c{last}"))
    return tuple(found), last
