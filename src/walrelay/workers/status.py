"""Where a running pipeline stands."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.log.status import CaptureStatus
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import Errored, TableReplicationPhase, phase_name


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Where a table stands."""

    name: TableName
    phase: str
    position: Lsn | None
    """Everything up to here is in the destination."""
    reason: str | None = None
    solution: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Where a pipeline stands."""

    tables: tuple[TableStatus, ...]
    position: Lsn | None
    log_end: Lsn | None
    changes: int
    lag_seconds: float
    """Age of the oldest change that is in the log but not in the destination; 0 when there is none."""
    capture: CaptureStatus | None


def table_status(name: TableName, phase: TableReplicationPhase | None, position: Lsn | None) -> TableStatus:
    if isinstance(phase, Errored):
        return TableStatus(name, "errored", position, phase.reason, phase.solution)
    return TableStatus(name, "init" if phase is None else phase_name(phase), position)
