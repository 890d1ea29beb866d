"""Temporary tables into which pieces of changes are copied, kept for as long as their connection: to make one takes
longer than to fill it with a small batch, and would leave dead rows in the catalog."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from walrelay.destinations.postgres.client import Connection, run
from walrelay.destinations.postgres.text import csv_bytes

MOST = 200
"""Temporary tables that are kept: at the end of each transaction the server empties all of them."""

Columns = tuple[tuple[str, str], ...]
"""Names of ours, and types."""


class Stages:
    """Of one connection at a time. All are empty when a transaction begins."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Columns], str] = {}
        self._made: list[tuple[str, Columns]] = []
        """In the open transaction."""
        self._filled: set[str] = set()
        self._generation = 0
        self._count = 0

    def begin(self, generation: int) -> None:
        """A transaction on this connection."""
        if generation != self._generation:
            self._names.clear()
            self._generation = generation
        self._made.clear()
        self._filled.clear()

    def rolled_back(self) -> None:
        """What was made in the transaction is gone."""
        for key in self._made:
            self._names.pop(key, None)
        self._made.clear()

    def fill(self, connection: Connection, use: str, columns: Columns, arrays: Sequence[pa.Array]) -> str:
        """The name of a table that has these columns and holds these rows. `use`: two tables are never one that are
        used for different things."""
        name = self._empty(connection, use, columns)
        self._filled.add(name)
        if len(arrays[0]):
            with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv)".encode()) as copy:
                copy.write(csv_bytes(list(arrays)))
        return name

    def _empty(self, connection: Connection, use: str, columns: Columns) -> str:
        key = (use, columns)
        name = self._names.pop(key, None)
        if name is None:
            self._count += 1
            name = f"pg_temp._walrelay_{use}_{self._count}"
            described = ", ".join(f"{column} {kind}" for column, kind in columns)
            run(connection, f"CREATE TEMPORARY TABLE {name} ({described}) ON COMMIT DELETE ROWS")
            self._made.append(key)
            self._forget_oldest(connection)
        elif name in self._filled:
            run(connection, f"TRUNCATE {name}")
        self._names[key] = name
        return name

    def _forget_oldest(self, connection: Connection) -> None:
        if len(self._names) >= MOST:
            oldest = next(iter(self._names))
            if self._names[oldest] not in self._filled:
                run(connection, f"DROP TABLE {self._names.pop(oldest)}")
