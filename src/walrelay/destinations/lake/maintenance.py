"""When a lake's tables are looked after: many small files are made into a few, and what no reader needs is removed.

A small file in the lake remembers when that was, and how far the table said it was then. So runs that catch up and end
look after their tables as often as one that goes on, and a table without changes is left alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from walrelay.destinations.lake.lines import read_lines, write_lines
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

MAINTAIN_EVERY = timedelta(hours=1)
"""Some hundred batches: until then they are still read quickly, and to rewrite them costs little beside the merges."""
_ONLY_COPIED, _FAILED = 0, -1
"""What a table said: no change has come yet. And what none says: one that failed is due again, also unchanged."""


class Maintenance:
    """Of one pipeline's tables; `every` None is never. `now` gives seconds since 1970."""

    def __init__(self, path: Path, every: timedelta | None, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._every = every
        self._now = now
        self._lock = threading.Lock()
        self._lines: dict[TableId, tuple[int, float]] = {
            table: (own, at) for table, (own, at) in read_lines(path).items()
        }

    def due(self, own: Mapping[TableId, Lsn]) -> list[TableId]:
        """Which of these tables, with what each says of itself, are to be looked after now. For one that is seen for
        the first time the time begins."""
        if self._every is None:
            return []
        with self._lock:
            new = {table: _ONLY_COPIED for table in own if table not in self._lines}
            if new:
                self._put(new)
            return [table for table, said in own.items() if self._is_due(self._lines[table], said, self._every)]

    def _is_due(self, line: tuple[int, float], said: Lsn, every: timedelta) -> bool:
        before, at = line
        return before != said and self._now() - at >= every.total_seconds()

    def done(self, table: TableId, own: Lsn) -> None:
        """It was looked after, and says this of itself."""
        with self._lock:
            self._put({table: int(own)})

    def failed(self, table: TableId) -> None:
        """It could not be looked after: that is tried again when it would have had its turn."""
        with self._lock:
            self._put({table: _FAILED})

    def forget(self, table: TableId) -> None:
        """A copy takes its place, which has few files."""
        with self._lock:
            if self._lines.pop(table, None) is not None:
                write_lines(self._path, self._lines)

    def _put(self, own: Mapping[TableId, int]) -> None:
        self._lines.update({table: (said, self._now()) for table, said in own.items()})
        write_lines(self._path, self._lines)
