"""What is tried again, how often, and after how long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

LONGEST_DELAY = timedelta(minutes=1)


def delays(first: timedelta, retries: int) -> Iterator[timedelta]:
    """The waits before each retry: doubling, up to a minute."""
    delay = first
    for _ in range(retries):
        yield min(delay, LONGEST_DELAY)
        delay *= 2
