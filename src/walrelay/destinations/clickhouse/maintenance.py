"""Removes what no reader needs any more: tombstones, and of tables without a key rows with those that take them away.

Only between batches, of a table whose changes are all recorded, also those that a run before this one has written:
what is removed then is never needed to hide something that comes again, since nothing comes again that was recorded.
What is to be done is read from the table itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.destinations.clickhouse.layout import (
    DELETED,
    ROW,
    SIGN,
    VERSION,
    create_storage,
    current,
    names,
    row_hash,
)
from walrelay.destinations.clickhouse.names import OwnNames
from walrelay.destinations.clickhouse.places import Held, Places
from walrelay.destinations.clickhouse.progress import Progress
from walrelay.destinations.clickhouse.storages import Storages
from walrelay.model.names import TableId

LOOK_EVERY = timedelta(hours=1)
"""How often it is looked whether there is something to do, which reads one small column."""
SHARE, LEAST = 10, 10_000
"""A table is rewritten when one row in so many is not needed, and so many are not: that takes a while."""


@dataclass
class Maintenance:
    """Of one run; `every` None is never. Whoever calls has the table for itself."""

    server: Server
    places: Places
    storages: Storages
    own: OwnNames
    progress: Progress
    every: timedelta | None = LOOK_EVERY
    least: int = LEAST
    clock: Callable[[], float] = time.monotonic
    _looked: dict[TableId, float] = field(default_factory=dict)

    def is_due(self, table: TableId) -> bool:
        """At the first batch of a run, and then now and again."""
        if self.every is None:
            return False
        last = self._looked.get(table)
        return last is None or self.clock() - last >= self.every.total_seconds()

    def look_after(self, table: TableId) -> bool:
        """Whether something was done."""
        held = self.places.held(table)
        if held is None:
            return False
        place, key = self.server.place(held.facts.storage), held.facts.key
        # A row that goes is not needed, nor is the one that it takes away.
        unneeded = f"countIf({DELETED} = 1)" if key else f"2 * countIf({SIGN} < 0)"
        latest = f"toUInt64(bitShiftRight(max({VERSION}), 64))"
        asked = f"SELECT {unneeded} AS unneeded, count() AS rows, {latest} AS latest FROM {place}"
        (found,) = self.server.rows(asked)
        recorded = self.progress.reached(held.facts.epoch)
        if recorded is None or found[2] >= recorded:
            return False  # a run that was killed has written what comes again: then soon
        self._looked[table] = self.clock()
        if found[0] < self.least or found[0] * SHARE < found[1]:
            return False
        if key:
            self.server.command(f"OPTIMIZE TABLE {place} FINAL CLEANUP", doing=f"maintaining {held.name}")
        else:
            self._rewrite(held)
        return True

    def _rewrite(self, held: Held) -> None:
        """What the rows come to, in a new table behind the view, as if they had just been copied."""
        facts: Facts = replace(held.facts, storage=self.own.storage(held.facts.table), hashed=True)
        doing = f"maintaining {held.name}"
        self.server.command(create_storage(self.server, facts), doing=doing)
        columns = ", ".join(names(facts))
        self.server.command(
            f"INSERT INTO {self.server.place(facts.storage)} ({columns}, {ROW}, {VERSION}, {SIGN}) SELECT {columns},"
            f" {row_hash(facts)}, toUInt128(rowNumberInAllBlocks()), 1 FROM {current(self.server, held.facts)}",
            doing=doing,
        )
        self.places.show(held.name, facts)
        self.storages.leave(held.facts.storage)
