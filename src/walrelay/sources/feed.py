"""What fills a change log, and tells how far it is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from walrelay.log.status import CaptureStatus


@runtime_checkable
class Feed(Protocol):
    """Capture from a slot is one, as a process of its own; a log that somebody else writes is another."""

    def start(self) -> None:
        """Begin, or go on where the log ends."""

    def check(self) -> None:
        """Raise what has ended it, when something has."""

    def status(self) -> CaptureStatus | None:
        """What is known of it; None while nothing is."""

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended by itself; False when it goes on."""

    def stop(self) -> None:
        """End it in order. Also called after a failure."""
