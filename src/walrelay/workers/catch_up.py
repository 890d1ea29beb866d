"""The catch-up of copied tables: what their snapshots have not seen, from the log, several tables in one write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.destinations.turns import Turns
from walrelay.errors import WalrelayError
from walrelay.failpoints import hit
from walrelay.log.cuts import bytes_of, cuts
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId

PIECE_BYTES = 8 * 1024 * 1024
"""Of the tables' data files in one write: less than a second for DuckDB, for which the others wait."""
SEEN_BYTES = 256 * 1024 * 1024
"""The same for what was in the log when the copy began: the snapshot has seen nearly all of it, so that little but a
look is left."""
_NOWHERE = Lsn(0)


@dataclass
class _Request:
    table: TableId
    visible: str | None
    target: Lsn
    since: Lsn
    start: Lsn | None = None
    """What ends up to here is in the copy; None is not known."""
    after: Lsn = _NOWHERE
    """How far it is."""
    reached: Lsn | None = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class CatchUps:
    """Called by each table's own worker. Whoever comes while a write goes on waits, and then goes with all others who
    came meanwhile: a write has a price of its own, whatever it holds. Those who have a long way take turns with those
    who came after them, piece by piece."""

    def __init__(
        self,
        send: Callable[[EventBatch], object],
        log: LogReader,
        batch: Callable[..., EventBatch],
        stopping: threading.Event,
        piece_bytes: int | None = None,
    ) -> None:
        self._send = send
        self._log = log
        self._batch = batch
        self._stopping = stopping
        self._piece_bytes = piece_bytes or PIECE_BYTES
        self._pending: list[_Request] = []
        self._arriving = threading.Lock()
        self._writing = Turns()

    def catch_up(
        self, table: TableId, visible: str | None, target: Lsn, since: Lsn, start: Lsn | None = None
    ) -> Lsn | None:
        """Bring a table, copied under a snapshot that sees `visible`, to `target` or further (SEMANTICS 8); None when
        the pipeline stops first. `since` is where the log was when the copy began. The copy holds everything that ends
        up to `start`; behind it `visible` decides, or, without that, everything is the table's."""
        mine = _Request(table, visible, target, since, start)
        with self._arriving:
            self._pending.append(mine)
        with self._writing, self._arriving:
            together, self._pending = self._pending, []
        if together:
            begin, end = self._log.start(), self._log.end()
            for one in together:
                # Behind the log's end there is nothing up to `start`: the log has come as far before we are called.
                one.after = min(max(one.start or begin, begin), max(end, one.target))
            self._write(together)
        mine.done.wait()
        if mine.error is not None:
            raise mine.error
        return mine.reached

    def _write(self, together: list[_Request]) -> None:
        """All of them, and each learns how it ended, whatever happens."""
        reached, error = None, None
        try:
            hit("catchup.before")
            reached = self._pieces(together)
            hit("catchup.after")
        except Exception as caught:
            error = caught
        if isinstance(error, WalrelayError) and len(together) > 1:
            for one in together:  # whoever fails, fails alone
                self._write([one])
            return
        for one in together:
            one.reached, one.error = reached, error
            one.done.set()

    def _pieces(self, together: list[_Request]) -> Lsn | None:
        """Piece by piece, so that tables which are ready get in between; until no more has come meanwhile than one
        piece, which is what the apply worker is left with when it takes them over.

        What came meanwhile is the next round, in pieces of twice the size: where changes come faster than small pieces
        can be written, larger ones, which cost less in all, overtake them some day.
        """
        tables = {one.table for one in together}
        target, since = max(one.target for one in together), min(one.since for one in together)
        # They go together, the one that has the longest way ahead.
        after, piece = min(one.after for one in together), self._piece_bytes
        while True:
            for end in self._ends(after, since, max(self._log.end(), target), tables, piece):
                if self._stopping.is_set():
                    return None
                # Who has all of it already goes along, and is told how far he is.
                ranges = tuple(
                    TableRange(one.table, min(max(after, one.after), end), unseen_by=one.visible) for one in together
                )
                with self._writing:
                    self._send(self._batch(after, end, ranges))
                after = end
                for one in together:
                    one.after = max(one.after, end)
            if self._size(after, self._log.end(), tables) <= piece:
                return after
            piece *= 2

    def _ends(self, after: Lsn, since: Lsn, to: Lsn, tables: set[TableId], piece: int) -> Iterator[Lsn]:
        if after < since <= to and self._size(after, since, tables) > piece:
            yield from cuts(self._log, after, since, max(piece, SEEN_BYTES), tables)
            after = since
        yield from cuts(self._log, after, to, piece, tables, inside=True)

    def _size(self, after: Lsn, to: Lsn, tables: set[TableId]) -> int:
        return sum(bytes_of(entry, tables) for entry in self._log.entries(after, to))
