"""One change of one row, as the log gives it to those who look at single changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName

Op = Literal["insert", "update", "delete", "truncate"]
OldKind = Literal["key", "row"]


@dataclass(frozen=True, slots=True)
class Change:
    """Ordered by `(commit_lsn, ordinal)` (SEMANTICS 1)."""

    commit_lsn: Lsn
    end_lsn: Lsn
    ordinal: int
    xid: int
    commit_time: datetime
    table: TableName
    op: Op
    schema_version: int
    row: dict[str, Any] | None
    """None for delete and truncate. The value of an unchanged column in it means nothing."""
    old: dict[str, Any] | None
    """The row before, where Postgres sent it: all of it, or (`old_kind` key) its identity columns."""
    old_kind: OldKind | None
    unchanged: tuple[str, ...]
    """Columns whose TOASTed value the update left alone, and Postgres therefore did not send."""
