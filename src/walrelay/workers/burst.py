"""When the first batch after a rest is complete enough to be taken."""

from __future__ import annotations

from walrelay.model.lsn import Lsn

OVER_SECONDS = 1.0
"""So long nothing new must have come. Capture publishes several times a second while anything comes."""
LONGEST_SECONDS = 10.0
"""However long the interval between two batches is."""


class Burst:
    """Changes that come after a rest come seldom alone. A destination that is written at intervals, because every batch
    costs it seconds, would take the first hundred, and the rest one batch later: it is given all of them at once, or
    what came within an interval. While batch follows batch there is no rest, and nothing waits here."""

    def __init__(self) -> None:
        self._rested = False
        self._begun: float | None = None
        self._end: Lsn | None = None
        self._grown = 0.0

    def rests(self) -> None:
        """A batch is due, and there is nothing to take."""
        self._rested, self._begun = True, None

    def goes_on(self, end: Lsn, now: float, every: float) -> bool:
        """Whether to wait for more than there is, up to `end`. `now` is by the monotonic clock."""
        if not self._rested:
            return False
        if self._begun is None:
            self._begun, self._end = now, None
        if end != self._end:
            self._end, self._grown = end, now
        if now - self._grown < OVER_SECONDS and now - self._begun < min(every, LONGEST_SECONDS):
            return True
        self._rested = False
        return False
