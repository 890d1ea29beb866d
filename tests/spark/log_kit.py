"""A database with tables, and a change log of it that is written on demand."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import psycopg

from walrelay.capture.capture import Capture
from walrelay.postgres.source import PostgresSource


class Source:
    """A database with a capture that is run on demand."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.log = url, log
        self._slot = f"s_{uuid4().hex[:12]}"
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("CREATE TABLE orders (id int PRIMARY KEY, key uuid, at time, paid numeric(8,2))")
        self.connection.execute("CREATE TABLE other (id int PRIMARY KEY)")
        self.connection.execute("CREATE PUBLICATION p FOR TABLE orders, other")
        self.capture()

    def capture(self) -> None:
        Capture(PostgresSource(self.url, publication="p"), slot=self._slot, log=self.log).run(until="caught-up")

    def change(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)
        self.capture()

    def close(self) -> None:
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        self.connection.close()
