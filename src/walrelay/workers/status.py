"""Where a running pipeline stands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walrelay.log.status import SILENT_SECONDS, STREAMING, CaptureStatus
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import Errored, TableReplicationPhase, phase_name
from walrelay.workers.batch_counts import BatchCounts

if TYPE_CHECKING:
    from walrelay.workers.board import TableBoard  # which knows Arrow; to ask from outside must be quick


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Where a table stands."""

    name: TableName
    phase: str
    position: Lsn | None
    """Everything up to here is in the destination."""
    reason: str | None = None
    solution: str | None = None
    code: str | None = None
    """Of the error."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Where a pipeline stands."""

    tables: tuple[TableStatus, ...]
    position: Lsn | None
    log_end: Lsn | None
    changes: int
    lag_seconds: float | None
    """Age of the oldest change that is in the log but not in the destination; 0 when there is none. None while capture
    does not hear from the source: then nobody knows what has been committed there."""
    capture: CaptureStatus | None
    unknown_since: float | None = None
    """Since when the lag is not known, in seconds since 1970."""
    paused: bool = False
    batches: BatchCounts = field(default_factory=BatchCounts)
    moved_at: float | None = None
    """When the pipeline's loop last took a turn or a batch was through, by the monotonic clock."""


def table_status(board: TableBoard) -> tuple[TableStatus, ...]:
    """All tables, by name."""
    phases, positions = board.phases(), board.positions
    return tuple(
        _table(name, phases.get(table), positions.get(table))
        for table, name in sorted(board.names.items(), key=lambda item: str(item[1]))
    )


def _table(name: TableName, phase: TableReplicationPhase | None, position: Lsn | None) -> TableStatus:
    if isinstance(phase, Errored):
        return TableStatus(name, "errored", position, phase.reason, phase.solution, phase.code)
    return TableStatus(name, "init" if phase is None else phase_name(phase), position)


def known_lag(
    log: LogView, position: Lsn | None, end: Lsn | None, capture: CaptureStatus | None
) -> tuple[float | None, float | None]:
    """The lag in seconds; or None, and since when it is not known."""
    if capture is None:
        return None, None
    if time.time() - capture.at > SILENT_SECONDS:
        return None, capture.at
    if capture.state != STREAMING:
        return None, capture.since
    if end is None or position is None or position >= end:
        return 0.0, None
    waiting = log.entries(position, end)
    return max(0.0, time.time() - waiting[0].created_at) if waiting else 0.0, None
