"""A change that could not be decoded, and what a pipeline's store says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

FACT = "quarantine"
"""The store's fact about a table: LSNs up to which its quarantined changes are `settled` (a copy has seen them), are
`dropped` (a person goes on without them), and, while they hold the table, are `held`."""


@dataclass(frozen=True, slots=True)
class QuarantinedChange:
    """One change that could not be decoded."""

    table: TableId
    name: str
    schema_version: int
    commit_lsn: Lsn
    end_lsn: Lsn
    ordinal: int
    xid: int
    commit_time: datetime | None
    op: str
    code: str
    reason: str
    key: str | None
    """A JSON object; a row's values."""


def marked(fact: Any, mark: str) -> Lsn:
    """An LSN of a table's fact; 0 when it has none."""
    return Lsn.parse(fact[mark]) if fact and mark in fact else Lsn(0)


def state_of(one: QuarantinedChange, fact: Any) -> Literal["open", "settled", "dropped"]:
    """open: its table waits for a copy, or for a person. settled: a later copy has it. dropped: given up."""
    if one.end_lsn <= marked(fact, "settled"):
        return "settled"
    return "dropped" if one.end_lsn <= marked(fact, "dropped") else "open"
