"""The words a user may choose from, apart from the settings: a command that only answers has no use for what reads
settings, which takes a fifth of a second to load."""

from __future__ import annotations

from typing import Literal

from walrelay.model.table_options import OnSilentChange

__all__ = ["Ack", "OnBadChanges", "OnSilentChange", "UnknownTypes"]

UnknownTypes = Literal["bytes", "text"]
Ack = Literal["log", "destination"]
OnBadChanges = Literal["copy", "error"]
LogFormat = Literal["auto", "text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
HookEvent = Literal[
    "table_failed",
    "table_recovered",
    "lag_over_limit",
    "lag_under_limit",
    "slot_at_risk",
    "slot_safe",
    "pipeline_ended",
]
