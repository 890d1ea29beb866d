"""Where a table stands (SEMANTICS 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never

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


@dataclass(frozen=True, slots=True)
class LateRetry:
    """Its cause may be gone some day (a right granted, a disk freed): tried again now and then, and nobody waits for
    it meanwhile."""


RetryPolicy = NoRetry | TimedRetry | LateRetry


@dataclass(frozen=True, slots=True)
class Errored:
    """Left out until it is retried or rolled back; the other tables go on. Every start tries it again."""

    reason: str
    solution: str | None
    retry_policy: RetryPolicy
    code: str = "walrelay"
    """Of the error, as `errors.py` has it."""
    retry_at: float | None = None
    """When it is tried again, in seconds since 1970."""

    @property
    def is_given_up(self) -> bool:
        """Whether nobody should wait for it."""
        return not isinstance(self.retry_policy, TimedRetry)


TableReplicationPhase = Init | DataSync | FinishedCopy | SyncWait | Catchup | SyncDone | Ready | Errored


def is_persisted(phase: TableReplicationPhase) -> bool:
    """Whether a store keeps the phase across restarts."""
    return not isinstance(phase, SyncWait | Catchup)


# ------------------------------------------------------------------------------------------------ what may follow what

PhaseType = type[TableReplicationPhase]
Setter = Literal["pipeline", "apply worker", "sync worker", "a person", "whoever failed", "retry timer or rollback"]


@dataclass(frozen=True, slots=True)
class Transition:
    """A step that a table may take, and who takes it."""

    before: tuple[PhaseType | None, ...]
    after: PhaseType
    set_by: tuple[Setter, ...]


_PERSISTED: Final[tuple[PhaseType, ...]] = (Init, DataSync, FinishedCopy, SyncDone, Ready, Errored)
_ALL: Final[tuple[PhaseType, ...]] = (*_PERSISTED, SyncWait, Catchup)

TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition((None,), Init, ("pipeline", "apply worker")),
    # It begins anew: the log cannot bring it further, the destination has lost it, or a person wants it (`resync`).
    Transition(_ALL, Init, ("pipeline", "apply worker", "a person")),
    Transition((Init, DataSync, FinishedCopy), DataSync, ("sync worker",)),
    Transition((DataSync,), FinishedCopy, ("sync worker",)),
    Transition((FinishedCopy,), SyncWait, ("sync worker",)),
    Transition((SyncWait,), Catchup, ("apply worker",)),
    Transition((Catchup,), SyncDone, ("sync worker",)),
    # The destination's own word about how far it is wins.
    Transition((SyncDone,), SyncDone, ("pipeline",)),
    Transition((SyncDone, Ready), Ready, ("apply worker",)),
    Transition(_ALL, Errored, ("whoever failed",)),
    # To the phase before the error, whichever that was: the history knows it.
    *(Transition((Errored,), kept, ("retry timer or rollback",)) for kept in _PERSISTED if kept is not Errored),
)
"""The table of SEMANTICS 10 and 28; the board of a pipeline lets nothing else pass."""


def may_follow(before: TableReplicationPhase | None, after: TableReplicationPhase) -> bool:
    """Whether a table that stands at `before` (None: unknown yet) may go to `after`."""
    if isinstance(before, Catchup) and isinstance(after, SyncDone) and after.lsn < before.lsn:
        return False
    kind = None if before is None else type(before)
    return any(kind in step.before and step.after is type(after) for step in TRANSITIONS)


# ------------------------------------------------------------------------------------------------------- history

PhaseHistory = tuple[TableReplicationPhase, ...]
"""The persisted phases by which a table came where it is, the present one last; each is further on than the one before,
so there are never more than six."""

_RANK: Final = {kind: rank for rank, kind in enumerate(_PERSISTED)}


def advanced(history: Sequence[TableReplicationPhase], phase: TableReplicationPhase) -> PhaseHistory:
    """The history once `phase` is set. What was as far or further is forgotten: a copy that begins again has removed
    what those phases spoke of, and an error that is over is no place to go back to."""
    rank = _RANK[type(phase)]
    return (*(earlier for earlier in history if _RANK[type(earlier)] < rank), phase)


# ---------------------------------------------------------------------------------------------------------- JSON

_NAMES: Final[dict[PhaseType, str]] = {
    Init: "init",
    DataSync: "data_sync",
    FinishedCopy: "finished_copy",
    SyncWait: "sync_wait",
    Catchup: "catchup",
    SyncDone: "sync_done",
    Ready: "ready",
    Errored: "errored",
}
PHASE_NAMES: Final = tuple(_NAMES.values())
_PLAIN: Final[dict[str, TableReplicationPhase]] = {
    _NAMES[type(phase)]: phase for phase in (Init(), DataSync(), FinishedCopy(), SyncWait(), Ready())
}


def phase_name(phase: TableReplicationPhase) -> str:
    """`data_sync`, `ready`, …: the word for it in stores and for people."""
    return _NAMES[type(phase)]


def phase_to_json(phase: TableReplicationPhase) -> dict[str, Any]:
    body: dict[str, Any] = {"phase": phase_name(phase)}
    match phase:
        case Init() | DataSync() | FinishedCopy() | SyncWait() | Ready():
            return body
        case Catchup(lsn) | SyncDone(lsn):
            return {**body, "lsn": str(lsn)}
        case Errored():
            return {
                **body,
                "reason": phase.reason,
                "solution": phase.solution,
                "retry_policy": _policy_to_json(phase.retry_policy),
                "code": phase.code,
                "retry_at": phase.retry_at,
            }
        case _:
            assert_never(phase)


def phase_from_json(body: dict[str, Any]) -> TableReplicationPhase:
    """The phase that `phase_to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    match body["phase"]:
        case "catchup":
            return Catchup(Lsn.parse(body["lsn"]))
        case "sync_done":
            return SyncDone(Lsn.parse(body["lsn"]))
        case "errored":
            policy = _policy_from_json(body["retry_policy"])
            # Earlier versions kept neither the code nor the time.
            code, retry_at = body.get("code", "walrelay"), body.get("retry_at")
            return Errored(str(body["reason"]), body["solution"], policy, code, retry_at)
        case name:
            return _PLAIN[name]


def _policy_to_json(policy: RetryPolicy) -> dict[str, Any]:
    match policy:
        case NoRetry():
            return {"kind": "none"}
        case TimedRetry(attempt):
            return {"kind": "timed", "attempt": attempt}
        case LateRetry():
            return {"kind": "late"}
        case _:
            assert_never(policy)


def _policy_from_json(body: dict[str, Any]) -> RetryPolicy:
    match body["kind"]:
        case "none":
            return NoRetry()
        case "timed":
            return TimedRetry(int(body["attempt"]))
        case "late":
            return LateRetry()
        case other:
            raise ValueError(f"no such retry policy: {other}")
