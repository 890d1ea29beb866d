"""What a table's changes in a batch hold, asked of Spark once before they are collapsed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from walrelay.model.special import Special

_PLACES = 1 << 61


@dataclass
class FrameSurvey:
    """Sums over all schema versions in the batch."""

    changes: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    olds: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    last_ordinal: int = 0
    last_commit: Any = None
    """When the last transaction was committed, as Spark gives a time."""
    truncated_at: tuple[int, int] | None = None
    """Commit LSN and ordinal of the last truncate."""
    unnamed: int = 0
    """Rows that go and do not say by the key which they are."""
    moves: int = 0
    """Updates by which a row takes another key, and perhaps some that only look so."""
    moved_lacking: int = 0
    """Rows that took another key and left a value out."""
    unchanged: set[int] = field(default_factory=set)
    """Columns, by their places, that some change left out."""
    specials: dict[int, Counter[Special]] = field(default_factory=dict)
    """Values that the target cannot hold, by column."""

    def add(self, row: Any, unchanged: Iterable[int], specials: dict[int, Counter[Special]]) -> None:
        """What was found in one schema version."""
        if not row.changes:
            return
        is_first = not self.changes
        self.first_lsn = row.first_lsn if is_first else min(self.first_lsn, row.first_lsn)
        self.last_lsn = max(self.last_lsn, row.last_lsn)
        self.last_ordinal = max(self.last_ordinal, row.last_ordinal)
        self.last_commit = row.last_commit if is_first else max(self.last_commit, row.last_commit)
        for name in ("changes", "inserts", "updates", "deletes", "olds", "unnamed", "moves", "moved_lacking"):
            setattr(self, name, getattr(self, name) + getattr(row, name))
        self.unchanged.update(unchanged)
        for column, counts in specials.items():
            self.specials.setdefault(column, Counter()).update(counts)

    def add_truncate(self, place: tuple[int, int]) -> None:
        """Commit LSN and ordinal of the last one in one schema version."""
        self.truncated_at = max(self.truncated_at or place, place)

    @property
    def treated(self) -> Counter[Special]:
        return sum(self.specials.values(), Counter[Special]())

    @property
    def place(self) -> str:
        """SQL for a change's place in the order, from 1 on; a BIGINT where that is wide enough."""
        width = self.last_ordinal + 1
        since = f"(commit_lsn - {self.first_lsn})"
        if (self.last_lsn - self.first_lsn + 1) * width >= _PLACES:
            since = f"CAST({since} AS DECIMAL(20, 0))"
        return f"({since} * {width} + ordinal + 1)"

    @property
    def after_truncate(self) -> str:
        """SQL for what came after the last truncate."""
        if self.truncated_at is None:
            return "true"
        lsn, ordinal = self.truncated_at
        return f"(commit_lsn > {lsn} OR (commit_lsn = {lsn} AND ordinal > {ordinal}))"
