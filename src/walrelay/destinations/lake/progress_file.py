"""How far tables are that had no changes: a small file in the lake, so that an idle table costs no commit.

A table that has changes says in its own log how far it is, in the commit that brings them. That word wins: a line here
counts only as long as the table still says what it said when the line was written.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from walrelay.destinations.lake.lines import read_lines, write_lines
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId


class ProgressFile:
    """Of one pipeline, in the lake's own directory. Batches and catch-ups write to it at the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._lines: dict[TableId, tuple[int, int]] = {
            table: (own, to) for table, (own, to) in read_lines(path).items()
        }

    def reached(self, table: TableId, own: Lsn) -> Lsn | None:
        """How far the table is, which itself says `own`: 0 where only a copy is in it."""
        said, to = self._lines.get(table, (None, 0))
        return Lsn(max(own, to) if said == own else own) or None

    def record(self, own: Mapping[TableId, Lsn], to: Lsn) -> None:
        """These tables say what `own` has for them, and hold all up to `to`. An older batch takes nothing back."""
        with self._lock:
            further = {table: said for table, said in own.items() if (self.reached(table, said) or Lsn(0)) < to}
            self._lines.update({table: (int(said), int(to)) for table, said in further.items()})
            if further:
                write_lines(self._path, self._lines)

    def forget(self, table: TableId) -> None:
        with self._lock:
            if self._lines.pop(table, None) is not None:
                write_lines(self._path, self._lines)
