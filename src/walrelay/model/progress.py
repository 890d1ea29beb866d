"""Who makes progress: the apply worker, or the sync worker of one table."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.model.names import TableId


@dataclass(frozen=True, slots=True)
class Apply:
    """The apply worker of a pipeline."""

    def __str__(self) -> str:
        return "apply"


@dataclass(frozen=True, slots=True)
class TableSync:
    """The sync worker of a table."""

    table: TableId

    def __str__(self) -> str:
        return f"table_sync:{self.table}"


WorkerType = Apply | TableSync
"""Its `str()` is its name in stores."""
