"""Where a table stands (SEMANTICS 10)."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.model.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Init:
    """Found in the publication, ready to be copied."""


@dataclass(frozen=True, slots=True)
class DataSync:
    """Its copy has begun."""


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """All its rows are durable in the destination."""


@dataclass(frozen=True, slots=True)
class SyncWait:
    """Waits to be told how far to catch up; never persisted."""


@dataclass(frozen=True, slots=True)
class Catchup:
    """Catches up to `lsn`; never persisted."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class SyncDone:
    """Caught up to `lsn`."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Ready:
    """The apply worker has it."""


@dataclass(frozen=True, slots=True)
class NoRetry:
    """Only a person can help."""


@dataclass(frozen=True, slots=True)
class TimedRetry:
    """Tried again by itself; `attempt` counts from 1."""

    attempt: int


RetryPolicy = NoRetry | TimedRetry


@dataclass(frozen=True, slots=True)
class Errored:
    """Left out until it is retried or rolled back; the other tables go on."""

    reason: str
    solution: str | None
    retry_policy: RetryPolicy


TableReplicationPhase = Init | DataSync | FinishedCopy | SyncWait | Catchup | SyncDone | Ready | Errored


def is_persisted(phase: TableReplicationPhase) -> bool:
    """Whether a store keeps the phase across restarts."""
    return not isinstance(phase, SyncWait | Catchup)
