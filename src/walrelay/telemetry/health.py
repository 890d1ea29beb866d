"""Whether a pipeline is alive, and whether what it keeps is current: judged from the last look; JSON says why."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from walrelay.telemetry.look import Look

STALE_SECONDS = 30.0
"""A look that is older says nothing about now."""
LISTED = 20
"""So many tables are named as reasons."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ok`, and what is said about it."""

    ok: bool
    body: dict[str, Any]


def health(look: Look | None) -> Verdict:
    """Whether the process does its work, however far behind it is. A source or a destination that is down is waited
    for, and no reason to be killed."""
    if look is None:
        return Verdict(True, {"healthy": True, "state": "starting"})
    stalled, limit = look.stalled_seconds, look.limits.stall_limit.total_seconds()
    reasons = []
    if look.ended:
        reasons.append("the pipeline has ended")
    elif stalled is not None and stalled > limit:
        reasons.append(f"the pipeline's loop has not moved for {stalled:.0f} s, which is more than {limit:.0f} s")
    body: dict[str, Any] = {"healthy": not reasons, "pipeline": look.pipeline, "state": _state(look)}
    return Verdict(not reasons, {**body, "loop_idle_seconds": _rounded(stalled), "reasons": reasons})


def _state(look: Look) -> str:
    if look.ended:
        return "ended"
    if look.status is None:
        return "starting"
    return "paused" if look.status.paused else "running"


def readiness(look: Look | None) -> Verdict:
    """Whether all tables are ready, none is in error, and the lag is known and under its limit."""
    if look is None:
        return Verdict(False, {"ready": False, "reasons": [{"what": "starting"}]})
    reasons = [*_general(look), *_tables(look), *_lag(look)]
    tables = look.status.tables if look.status is not None else ()
    body: dict[str, Any] = {
        "ready": not reasons,
        "pipeline": look.pipeline,
        "lag_seconds": _rounded(look.lag_seconds),
        "tables": dict(Counter(one.phase for one in tables)),
        "reasons": reasons[:LISTED],
    }
    if len(reasons) > LISTED:
        body["more_reasons"] = len(reasons) - LISTED
    return Verdict(not reasons, body)


def is_stale(look: Look) -> bool:
    """Whether the look is too old to say anything about now: whoever looks waits for something that does not answer."""
    return time.time() - look.at > max(STALE_SECONDS, 3 * look.limits.every.total_seconds())


def _general(look: Look) -> list[dict[str, Any]]:
    if look.ended:
        return [{"what": "ended", "message": "the pipeline has ended"}]
    if is_stale(look):
        return [{"what": "stale", "message": f"its state is not known since {time.time() - look.at:.0f} s"}]
    if look.status is None:
        return [{"what": "starting", "message": "it is starting"}]
    return []


def _lag(look: Look) -> list[dict[str, Any]]:
    if look.status is None or look.ended:
        return []
    if look.is_behind is None:
        why = "the source is not heard" if look.source_up is not None else "capture has not begun"
        return [{"what": "lag_unknown", "message": f"how far it is behind is not known: {why}"}]
    if not look.is_behind:
        return []
    limit = look.limits.lag_limit.total_seconds()
    message = f"it is {look.lag_seconds:.1f} s behind, more than {limit:g} s"
    return [{"what": "lag_over_limit", "message": message, "lag_seconds": _rounded(look.lag_seconds)}]


def _tables(look: Look) -> list[dict[str, Any]]:
    if look.status is None or look.ended:
        return []
    waiting = [one for one in look.status.tables if one.phase != "ready"]
    return [
        {"what": "table_failed", "table": str(one.name), "code": one.code, "message": one.reason, "hint": one.solution}
        if one.phase == "errored"
        else {"what": "table_not_ready", "table": str(one.name), "phase": one.phase}
        for one in sorted(waiting, key=lambda one: one.phase != "errored")
    ]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
