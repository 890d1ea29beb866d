"""What is tried again after how long: the one back-off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

LONGEST_DELAY = timedelta(minutes=1)


def delay_of(attempt: int, first: timedelta, longest: timedelta = LONGEST_DELAY) -> timedelta:
    """The wait after so many failed attempts (1 for the first): doubling, up to the longest."""
    return min(first * (1 << min(attempt - 1, 30)), longest)


def delays(first: timedelta, longest: timedelta = LONGEST_DELAY) -> Iterator[timedelta]:
    """The waits after the first failed attempt, the second, and so on, without end."""
    attempt = 0
    while True:
        attempt += 1
        yield delay_of(attempt, first, longest)
