"""The catch-up of copied tables: what their snapshots have not seen, from the log, several tables in one write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from walrelay.destinations.base import Destination
from walrelay.destinations.events import EventBatch, TableRange
from walrelay.errors import WalrelayError
from walrelay.failpoints import hit
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId


@dataclass
class _Request:
    table: TableId
    visible: str
    target: Lsn
    reached: Lsn | None = None
    error: WalrelayError | None = None


class CatchUps:
    """Called by each table's own worker. Whoever comes while a write goes on waits, and then goes with all others who
    came meanwhile: a write has a price of its own, whatever it holds."""

    def __init__(self, destination: Destination, log: LogReader, batch: Callable[..., EventBatch]) -> None:
        self._destination = destination
        self._log = log
        self._batch = batch
        self._pending: list[_Request] = []
        self._arriving = threading.Lock()
        self._writing = threading.Lock()

    def catch_up(self, table: TableId, visible: str, target: Lsn) -> Lsn:
        """Bring a table, copied under a snapshot that sees `visible`, to `target` or further (SEMANTICS 8)."""
        mine = _Request(table, visible, target)
        with self._arriving:
            self._pending.append(mine)
        with self._writing:
            with self._arriving:
                together, self._pending = self._pending, []
            if together:
                self._write(together)
        if mine.error is not None:
            raise mine.error
        assert mine.reached is not None
        return mine.reached

    def _write(self, together: list[_Request]) -> None:
        start, to = self._log.start(), max(self._log.end(), *(one.target for one in together))
        ranges = tuple(TableRange(one.table, start, unseen_by=one.visible) for one in together)
        try:
            hit("catchup.before")
            self._destination.write_events(self._batch(start, to, ranges))
            hit("catchup.after")
        except WalrelayError as error:
            if len(together) == 1:
                together[0].error = error
                return
            for one in together:  # whoever fails, fails alone
                self._write([one])
            return
        for one in together:
            one.reached = to
