"""What the log forgets: whole entries from its old end, once they are old enough and every reader has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from walrelay.log.manifest import MANIFEST, Entry, Manifest
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn


def _always() -> None:
    pass


class Retention:
    """Removes entries that are older than `max_age` and end at or before `keep_after`; None sets no such bound.

    With neither bound nothing is removed. Never removes what a registered reader has yet to apply, nor the last entry:
    it says where the log ends.
    """

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        readers: ReaderPositions,
        *,
        max_age: timedelta | None,
        keep_after: Lsn | None = None,
        check: Callable[[], None] = _always,
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._readers = readers
        self._max_age = max_age
        self.keep_after = keep_after
        """May be moved forward between runs."""
        self._check = check

    def run_once(self, now: float) -> int:
        """Remove what may go at `now` (seconds since 1970); the number of entries of the chain that went."""
        if self._max_age is None and self.keep_after is None:
            return 0
        chain, replaced = self._manifest.look()
        going: list[Entry] = []
        slowest = self._readers.slowest()
        for entry in chain[:-1]:
            if not self._may_go(entry, now, slowest):
                break
            going.append(entry)
        if not going:
            return 0
        self._check()
        # What a merged entry replaced would take its place again: it goes first.
        inside = [entry for entry in replaced if entry.last <= going[-1].last]
        for entry in (*inside, *going):
            self._storage.delete(entry.path)
            # One by one: were a later removal to survive a crash and an earlier one not, the chain had a hole.
            self._storage.sync(MANIFEST)
        for entry in (*inside, *going):
            for file in entry.files:
                self._storage.delete(file.path)
        return len(going)

    def _may_go(self, entry: Entry, now: float, slowest: Lsn | None) -> bool:
        return (
            (self._max_age is None or entry.created_at < now - self._max_age.total_seconds())
            and (self.keep_after is None or entry.end_lsn <= self.keep_after)
            and (slowest is None or entry.end_lsn <= slowest)
        )
