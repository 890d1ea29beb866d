"""How much of a long repetition runs: `make test` takes a part of it, `make kills` all."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
ALL_KILLS = bool(os.environ.get("WALRELAY_ALL_KILLS"))


def some(short: T, whole: T) -> T:
    """What is to be done now."""
    return whole if ALL_KILLS else short
