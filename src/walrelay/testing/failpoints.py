"""Arm the places between two steps: in this process, or in a child through its environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.failpoints import NAMES, arm, disarm

ENVIRONMENT = "WALRELAY_FAILPOINTS"
"""Read by the `walrelay` commands when they start: `name=kill:3,other=sleep:0.5`."""


@contextmanager
def armed(what: str) -> Iterator[None]:
    """Armed inside the block."""
    arm(what)
    try:
        yield
    finally:
        disarm()


__all__ = ["ENVIRONMENT", "NAMES", "arm", "armed", "disarm"]
