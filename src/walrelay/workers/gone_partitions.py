"""Partitions that came and went between two looks at the catalog. Rows that were written to them arrived under their
root's name; that they went with their partition nobody tells, and the catalog has forgotten it."""

from __future__ import annotations

from walrelay.log.reader import LogReader
from walrelay.model.fingerprints import Fingerprint
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.workers.fingerprint_book import Known


class GonePartitions:
    """What the log says about who wrote under a root's name. For one thread."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._seen: dict[TableId, dict[TableId, Lsn]] = {}
        """By root and partition: the last commit that made its presence known."""
        self._own: set[TableId] = set()
        """Those that have changes under their own name, and so are no partitions of a root."""
        self._judged: dict[TableId, Lsn] = {}
        self.scanned_lsn = Lsn(0)
        """The log is known up to here."""

    def scan(self, to: Lsn, *, wanted: bool) -> None:
        """Learn what the log has up to `to`; nothing while no table has partitions."""
        if to <= self.scanned_lsn:
            return
        start = self._log.start()
        if wanted and to > start:
            for entry in self._log.entries(max(self.scanned_lsn, start), to):
                self._own.update(file.table for file in entry.files if file.table is not None)
                for part in entry.parts:
                    leaves = self._seen.setdefault(part.root, {})
                    leaves[part.leaf] = max(part.lsn, leaves.get(part.leaf, part.lsn))
        self.scanned_lsn = to

    def unjudged(self, seen_lsn: Lsn) -> list[TableId]:
        """Roots of which partitions were heard that a look at the catalog, as it was at `seen_lsn`, must have found."""
        return [root for root in self._seen if self._newest(root, seen_lsn) > self._judged.get(root, Lsn(0))]

    def has_gone(self, known: Known, now: Fingerprint, seen_lsn: Lsn) -> bool:
        """Whether one of them is neither in the table as it was copied, nor in it now."""
        root = now.sighting.table
        self._judged[root] = self._newest(root, seen_lsn)
        there = self._own | {one.id for one in (*known.fingerprint.storage, *now.storage)}
        return any(leaf not in there and known.lsn < lsn <= seen_lsn for leaf, lsn in self._seen.get(root, {}).items())

    def _newest(self, root: TableId, upto: Lsn) -> Lsn:
        return max((lsn for lsn in self._seen[root].values() if lsn <= upto), default=Lsn(0))
