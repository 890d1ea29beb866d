"""What a warehouse knows of a table of ours: whose it is, which columns it has, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from walrelay.changes.shapes import HeldColumn
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId


@dataclass(frozen=True, slots=True)
class Alteration:
    """One statement of DDL, by the names that columns have here."""

    kind: Literal["drop", "rename", "retype", "add"]
    column: str
    to: str = ""
    """The name of one that is renamed, the type of one that is added or retyped."""

    def is_done(self, columns: frozenset[str]) -> bool:
        """Whether a table with these columns has seen it, when all before it are done. A type says it itself."""
        match self.kind:
            case "drop":
                return self.column not in columns
            case "rename":
                return self.to in columns
            case "add":
                return self.column in columns
            case "retype":
                return False  # to do it again changes nothing


@dataclass(frozen=True, slots=True)
class Ledger:
    """DDL that is under way: what is to be done, how much of it is, and what the table then is (SEMANTICS 18)."""

    steps: tuple[Alteration, ...]
    done: int
    columns: tuple[HeldColumn, ...]
    shape: tuple[Lsn, int]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableState:
    """Of one table. `applied` stands in a column of its own, since a transaction reads and writes it."""

    table: TableId
    source: str
    pipeline: str
    """Which keeps it current; empty for a copy without changes."""
    place: str
    columns: tuple[HeldColumn, ...]
    """Under the names that the source has for them."""
    key: tuple[str, ...]
    shape: tuple[Lsn, int]
    """Since when, and in which version, it has its columns."""
    copied: Lsn | None
    """Where the snapshot of its copy was taken; None for a table that changes alone have made."""
    copy: str
    """Which copy it is: a batch that was made for another one is not taken."""
    has_rows: bool
    """Whether there were any when it was copied; changes bring more."""
    ledger: Ledger | None = None
    moving: str = ""
    """The place to which it is being moved."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TableState:
        said = json.loads(text)
        copied = said.pop("copied")
        ledger = said.pop("ledger")
        return cls(
            **_typed(said),
            copied=None if copied is None else Lsn(copied),
            ledger=None
            if ledger is None
            else Ledger(tuple(Alteration(**one) for one in ledger.pop("steps")), **_typed(ledger)),
        )


def _typed(said: Mapping[str, Any]) -> dict[str, Any]:
    lsn, version = said["shape"]
    columns = tuple(HeldColumn(**one) for one in said["columns"])
    return {**said, "columns": columns, "shape": (Lsn(lsn), version), "key": tuple(said["key"])}


@dataclass(frozen=True, slots=True)
class Kept:
    """A table's state, and how far it is: None when it is to be copied, 0 when it was and no changes came yet."""

    state: TableState
    applied: Lsn | None
