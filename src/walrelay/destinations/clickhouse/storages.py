"""Tables behind views: those that no view shows any more are dropped, a while after the last reader may have begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable

from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import literal
from walrelay.destinations.clickhouse.names import OwnNames

GRACE_SECONDS = 10.0
"""Between the moment in which a view shows another table and that in which the old one goes: a query that has read what
the view was then has begun by now."""


class Storages:
    """Of one database."""

    def __init__(self, server: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._lock = threading.Lock()
        self._left: list[tuple[float, str, str]] = []
        """Since when it waits, a table, and the statement that removes what was left behind of it."""

    def has_rows(self, storage: str) -> bool:
        return bool(self._server.rows(f"SELECT 1 AS one FROM {self._server.place(storage)} LIMIT 1"))

    def leave(self, storage: str) -> None:
        """No view shows it any more."""
        place = self._server.place(storage)
        self._later(place, f"DROP TABLE IF EXISTS {place}")

    def drop_columns(self, storage: str, names: Iterable[str]) -> None:
        """No view shows them any more."""
        for name in names:
            place = self._server.place(storage)
            self._later(place, f"ALTER TABLE {place} DROP COLUMN IF EXISTS {name}")

    def _later(self, place: str, statement: str) -> None:
        with self._lock:
            self._left.append((self._clock(), place, statement))

    def tidy(self, *, at_once: bool = False) -> None:
        """Remove what has waited long enough."""
        with self._lock:
            due = [one for one in self._left if at_once or one[0] + GRACE_SECONDS <= self._clock()]
            self._left = [one for one in self._left if one not in due]
        doing = "removing what no view shows any more"
        for _, place, statement in due:
            if self._server.rows(f"EXISTS TABLE {place}")[0][0]:  # ALTER knows no IF EXISTS for its table
                self._server.command(statement, doing=doing)

    def sweep(self, own: OwnNames, shown: Collection[str]) -> None:
        """Drop what a run of this pipeline has left that was killed: tables with its tag that no view shows."""
        database = literal(self._server.address.database)
        found = self._server.rows(
            f"SELECT name FROM system.tables WHERE database = {database} AND startsWith(name, {literal(own.prefix)})"
        )
        for (name,) in found:
            if name.decode() not in shown and not own.is_history(name.decode()):
                self._server.command(f"DROP TABLE IF EXISTS {self._server.place(name.decode())}", doing="tidying up")
