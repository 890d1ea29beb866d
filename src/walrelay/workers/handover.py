"""From a copy to the apply worker: a copied table catches up from the log with what its snapshot has not seen."""

from __future__ import annotations

from collections.abc import Callable

from walrelay.log.xids import catch_up_start, read_samples
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import SyncDone, SyncWait
from walrelay.postgres.catalog import PublishedTable
from walrelay.postgres.slot import Nudger
from walrelay.workers.board import TableBoard
from walrelay.workers.catch_up import CatchUps
from walrelay.workers.event_writer import EventWriter
from walrelay.workers.parts import LiveParts
from walrelay.workers.standby_cut import position_of
from walrelay.workers.table_sync import Copied

TICK_SECONDS = 0.05


class Handovers:
    """Called by each table's own sync worker. `position` says where the apply worker is."""

    def __init__(
        self, parts: LiveParts, board: TableBoard, writer: EventWriter, nudger: Nudger, position: Callable[[], Lsn]
    ) -> None:
        self._parts = parts
        self._board = board
        self._nudger = nudger
        self._position = position
        self._catch_ups = CatchUps(
            writer.write, parts.log, parts.batch, parts.stopping, parts.destination.capabilities.batching.piece_bytes
        )

    def begin(self, table: TableId) -> None:
        """Its copy begins: what comes into the log from here on is kept for it."""
        self._board.begin_copy(table, self._position())

    def hand_over(self, table: PublishedTable, copied: Copied) -> bool:
        """Whether the table stands where its changes are applied; not when the pipeline stops, or wants another copy of
        it."""
        parts, board = self._parts, self._board
        board.set(table.id, SyncWait())
        target = board.wait_for_catchup(table.id, parts.stopping)
        if target is None or not self._wait_for_log(copied.seen_lsn):
            return False
        since = board.copying_since(table.id)
        reached = self._catch_ups.catch_up(table.id, copied.visible, target, since, self._start_of(copied))
        if reached is None:
            return False
        board.set(table.id, SyncDone(reached))
        return True

    def _start_of(self, copied: Copied) -> Lsn:
        """What ends up to here is in the copy."""
        parts = self._parts
        if copied.cut is not None:
            return position_of(copied.cut, parts.log, upserts=parts.destination.capabilities.materializes)
        assert copied.visible is not None
        return catch_up_start(read_samples(parts.log.storage), parts.log.start(), copied.visible)

    def _wait_for_log(self, lsn: Lsn) -> bool:
        """Whether the log came so far before the pipeline stops. Only when it holds all that the snapshot has seen does
        what comes after the catch-up belong to the table without a look at the snapshot."""
        while self._parts.log.head() < lsn:
            if self._parts.stopping.wait(TICK_SECONDS):
                return False
            self._nudger.still_waiting()
        return True
