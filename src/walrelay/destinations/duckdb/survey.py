"""What a run of changes holds, asked once before it is taken."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_PLACES = 1 << 61


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Survey:
    """What a run holds."""

    changes: int
    inserts: int
    updates: int
    deletes: int
    truncates: int
    first_lsn: int
    last_lsn: int
    last_ordinal: int
    olds: int
    unchanged: int
    unchanged_names: tuple[str, ...] | None = None
    """The columns that some change left out, when that is known."""

    @classmethod
    def of(cls, changes: pa.Table) -> Survey:
        """The same as `SURVEY` asks, of changes in memory."""
        counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(changes.column("op")).to_pylist()}
        inserts, updates, deletes, truncates = (counts.get(op, 0) for op in ("insert", "update", "delete", "truncate"))
        ends = pc.min_max(changes.column("commit_lsn")).as_py()
        olds = len(changes) - changes.column("old_kind").null_count
        unchanged = changes.column("unchanged")
        return cls(
            changes=len(changes),
            inserts=inserts,
            updates=updates,
            deletes=deletes,
            truncates=truncates,
            first_lsn=ends["min"],
            last_lsn=ends["max"],
            last_ordinal=pc.max(changes.column("ordinal")).as_py(),
            olds=olds,
            unchanged=len(changes) - unchanged.null_count,
            unchanged_names=tuple(pc.unique(pc.list_flatten(unchanged)).to_pylist()),
        )

    @property
    def only_inserts(self) -> bool:
        return self.inserts == self.changes

    @property
    def place(self) -> str:
        """SQL for a change's place in the order, from 1 on; a BIGINT where that is wide enough."""
        width = self.last_ordinal + 1
        fits = (self.last_lsn - self.first_lsn + 1) * width < _PLACES
        since = f"(commit_lsn - {self.first_lsn})"
        return f"({since if fits else f'CAST({since} AS HUGEINT)'} * {width} + ordinal + 1)"


SURVEY = """
SELECT count(*), count(*) FILTER (op = 'insert'), count(*) FILTER (op = 'update'), count(*) FILTER (op = 'delete'),
    count(*) FILTER (op = 'truncate'), min(commit_lsn), max(commit_lsn), max(ordinal), count(old_kind),
    count(unchanged)
FROM {source}
"""
