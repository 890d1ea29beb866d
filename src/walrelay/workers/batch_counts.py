"""How many batches were written, and how long they took: counted where they are, read by whoever wants to know."""

from __future__ import annotations

from dataclasses import dataclass, replace

BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Seconds: from an embedded file, which takes a batch in milliseconds, to a warehouse's minutes."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Since the run began. Never changes; each batch puts another one in its place."""

    batches: int = 0
    seconds: float = 0.0
    within: tuple[int, ...] = (0,) * len(BOUNDS)
    """How many took no longer than each of the bounds."""
    retries: int = 0
    """How often a batch, or what flew with it, was sent again after a failure."""

    def written(self, seconds: float) -> BatchCounts:
        within = tuple(count + (seconds <= bound) for count, bound in zip(self.within, BOUNDS, strict=True))
        return replace(self, batches=self.batches + 1, seconds=self.seconds + seconds, within=within)

    def failed(self) -> BatchCounts:
        return replace(self, retries=self.retries + 1)
