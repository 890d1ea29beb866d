"""The words a user may choose from, apart from the settings: a command that only answers has no use for what reads
settings, which takes a fifth of a second to load."""

from __future__ import annotations

from typing import Literal

from walrelay.model.table_options import OnSilentChange

__all__ = ["Ack", "OnBadChanges", "OnSilentChange", "UnknownTypes"]

UnknownTypes = Literal["bytes", "text"]
Ack = Literal["log", "destination"]
OnBadChanges = Literal["copy", "error"]
