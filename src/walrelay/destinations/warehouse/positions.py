"""How far tables are that had no changes: facts in the pipeline's store, so that an idle table costs no statement.

A table that has changes says itself how far it is, in the transaction that brings them. That word wins: a fact counts
only as long as the table still says what it said when the fact was written.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.stores.base import DestinationStore

FACT = "warehouse_reached"


class Positions:
    """Of one pipeline."""

    def __init__(self, store: DestinationStore) -> None:
        self._store = store
        self._known: dict[TableId, tuple[int, int]] = {
            table: (said["own"], said["to"]) for table, said in store.get_facts(FACT).items()
        }

    def reached(self, table: TableId, own: Lsn) -> Lsn | None:
        """How far the table is, which itself says `own`: 0 where only a copy is in it."""
        said, to = self._known.get(table, (None, 0))
        return Lsn(max(own, to) if said == own else own) or None

    def record(self, own: Mapping[TableId, Lsn], to: Lsn) -> None:
        """These tables say what `own` has for them, and hold all up to `to`. An older batch takes nothing back."""
        for table, said in own.items():
            if (self.reached(table, said) or Lsn(0)) < to:
                self._known[table] = (int(said), int(to))
                self._store.store_fact(table, FACT, {"own": int(said), "to": int(to)})

    def forget(self, table: TableId) -> None:
        if self._known.pop(table, None) is not None:
            self._store.store_fact(table, FACT, None)
