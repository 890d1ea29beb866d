"""What is worth telling somebody who is not looking: made by comparing one look at a pipeline with those before."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from walrelay.config.choices import HookEvent, LogLevel
from walrelay.errors import WalrelayError
from walrelay.telemetry.log import error_fields, moment
from walrelay.telemetry.look import Look
from walrelay.workers.report import RunSummary

PHRASES: Final[dict[HookEvent, tuple[LogLevel, str]]] = {
    "table_failed": ("error", "table failed"),
    "table_recovered": ("info", "table recovered"),
    "lag_over_limit": ("error", "lag is over its limit"),
    "lag_under_limit": ("info", "lag is under its limit again"),
    "slot_at_risk": ("error", "slot is at risk"),
    "slot_safe": ("info", "slot is safe again"),
    "pipeline_ended": ("info", "pipeline ended"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened. No row value, no secret."""

    name: HookEvent
    pipeline: str
    at: float
    """Seconds since 1970."""
    fields: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The same however often it is sent."""

    def body(self) -> dict[str, Any]:
        """What a hook is told."""
        head = {"event": self.name, "id": self.id, "at": moment(self.at), "pipeline": self.pipeline}
        return {**head, **self.fields}


class Watchman:
    """Remembers what was so, and says what has changed. For one thread."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._is_behind = self._is_at_risk = False

    def news(self, look: Look) -> list[Event]:
        return [*self._tables(look), *self._lag(look), *self._slot(look)]

    def _tables(self, look: Look) -> list[Event]:
        """A table that fails again and again, or is being tried again, failed once."""
        found = []
        tables = look.status.tables if look.status is not None else ()
        for one in tables:
            name = str(one.name)
            if one.phase == "errored" and name not in self._failed:
                self._failed.add(name)
                what = {"table": name, "code": one.code, "message": one.reason, "hint": one.solution}
                found.append(Event("table_failed", look.pipeline, look.at, what))
            elif one.phase == "ready" and name in self._failed:
                self._failed.remove(name)
                found.append(Event("table_recovered", look.pipeline, look.at, {"table": name}))
        if tables:
            self._failed &= {str(one.name) for one in tables}  # one that is gone, or renamed
        return found

    def _lag(self, look: Look) -> list[Event]:
        """While the lag is not known, nothing is said of it."""
        if look.is_behind is None or look.is_behind == self._is_behind:
            return []
        self._is_behind = look.is_behind
        what = {
            "lag_seconds": round(look.lag_seconds or 0.0, 3),
            "limit_seconds": look.limits.lag_limit.total_seconds(),
            "lag_bytes": look.lag_bytes,
        }
        return [Event("lag_over_limit" if self._is_behind else "lag_under_limit", look.pipeline, look.at, what)]

    def _slot(self, look: Look) -> list[Event]:
        risk, capture = look.slot_risk, look.capture
        if capture is None or not look.slot_known or (risk is not None) == self._is_at_risk:
            return []
        self._is_at_risk = risk is not None
        what: dict[str, Any] = {"slot": capture.slot, "retained_bytes": capture.retained_wal_bytes}
        if risk is None:
            return [Event("slot_safe", look.pipeline, look.at, what)]
        return [Event("slot_at_risk", look.pipeline, look.at, {**what, "message": risk})]


def ended(pipeline: str, at: float, summary: RunSummary | None, error: BaseException | None) -> Event:
    """How the run ended."""
    if isinstance(error, WalrelayError):
        what: dict[str, Any] = {"outcome": "failed", **error_fields(error)}
    elif error is not None:
        what = {"outcome": "failed", "code": "walrelay.bug", "message": type(error).__name__}
    else:
        what = {"outcome": "stopped"}
    if summary is not None:
        what |= {"changes": summary.changes, "rows": summary.rows, "seconds": round(summary.seconds, 3)}
        if summary.failed:
            what["failed_tables"] = [str(one.name) for one in summary.failed]
    return Event("pipeline_ended", pipeline, at, what)
