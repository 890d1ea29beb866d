"""Does what a person has asked of a pipeline (`stores/facts.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from walrelay.errors import WalrelayError
from walrelay.model.names import TableId
from walrelay.model.notice import Notice
from walrelay.model.phases import DataSync, Init
from walrelay.stores.base import StateStore
from walrelay.stores.facts import WANTED, paused_since
from walrelay.stores.failures import NoEarlierPhaseError
from walrelay.workers.board import TableBoard

LOOK_SECONDS: Final = 0.5


class CommandDesk:
    """Looks now and then what is wanted, and does it at a boundary between batches. For one thread."""

    def __init__(self, store: StateStore, notify: Callable[[str], None]) -> None:
        self._store = store
        self._notify = notify
        self._looked_at = float("-inf")
        self.is_paused = False

    def look(self, board: TableBoard | None, is_busy: Callable[[TableId], bool]) -> None:
        """Do what is wanted of tables that no worker has; with the board's writing lock, as whoever hands over."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        self._look_for_pause()
        if board is None:
            return
        for table, wanted in self._store.get_facts(WANTED).items():
            if table not in board.names or is_busy(table):
                continue
            if wanted["what"] == "resync":
                self._resync(board, table)
            else:
                self._rollback(board, table)
            self._store.store_fact(table, WANTED, None)

    def _look_for_pause(self) -> None:
        is_paused = paused_since(self._store) is not None
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            said = "paused: nothing is written to the destination, capture goes on; `walrelay resume` ends it"
            self._notify(Notice("paused", said) if is_paused else Notice("resumed", "resumed"))

    def _resync(self, board: TableBoard, table: TableId) -> None:
        if not isinstance(board.phase(table), Init | DataSync):
            name = board.names[table]
            self._notify(Notice("resync", f"{name} is copied again: it was asked for", table=str(name)))
        board.begin_anew(table)

    def _rollback(self, board: TableBoard, table: TableId) -> None:
        name = board.names[table]
        try:
            phase = board.roll_back(table)
        except NoEarlierPhaseError:
            self._notify(Notice.warning("no rollback", f"{name} has no earlier phase to go back to", table=str(name)))
        except WalrelayError as error:
            said = f"{name} could not be rolled back: {error.message}"
            self._notify(Notice.warning("no rollback", said, table=str(name), code=error.code, message=error.message))
        else:
            said = f"{name} is back in the phase {phase}: it was asked for"
            self._notify(Notice("rollback", said, table=str(name), phase=phase))
