"""Somebody who works in the demo's shop: so many transactions a second, in a thread, until told to stop."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, LiteralString

from walrelay.errors import SourceError
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.source import PostgresSource

TRANSACTIONS_PER_SECOND = 200
_TRADE = "SELECT pg_temp.trade(%s::bigint, %s::int, %s::int), pg_current_wal_insert_lsn()::text AS lsn"


@dataclass(frozen=True, slots=True)
class Written:
    """Rows, by what was done with them."""

    inserted: int
    updated: int
    deleted: int

    def __sub__(self, before: Written) -> Written:
        return Written(self.inserted - before.inserted, self.updated - before.updated, self.deleted - before.deleted)

    @property
    def rows(self) -> int:
        return self.inserted + self.updated + self.deleted

    def __str__(self) -> str:
        return f"{self.inserted:,} rows inserted, {self.updated:,} updated, {self.deleted:,} deleted"


class Writer:
    """`with Writer(source) as writer:` … `writer.stop()`, after which all of it is committed."""

    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="walrelay-demo-writer", daemon=True)
        self._begun = 0.0
        self._error: SourceError | None = None
        self.transactions = 0
        self.written: Written | None = None
        """Known once it has stopped."""
        self.before_last_commit = Lsn(0)
        """Whoever has applied a commit beyond this has them all, once it has stopped."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def start(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def per_second(self) -> float:
        return self.transactions / max(time.monotonic() - self._begun, 0.001)

    def _run(self) -> None:
        try:
            with (
                talking("trading in the shop"),
                connect(self._source, application="walrelay demo writer") as connection,
            ):
                before = _written(connection)
                self._trade(connection)
                connection.execute("SELECT pg_stat_force_next_flush()")
                self.written = _written(connection) - before
        except SourceError as error:
            self._error = error

    def _trade(self, connection: Connection) -> None:
        connection.execute(statement("shop_trade"))
        found = connection.execute(statement("shop_size")).fetchone()
        assert found is not None  # a SELECT without FROM
        while not self._stopping.wait(self._until_next()):
            # Asked within the transaction: its commit comes after that position, and is the next one there.
            row = connection.execute(_TRADE, (self.transactions + 1, found.customers, found.products)).fetchone()
            assert row is not None
            self.before_last_commit = Lsn.parse(row.lsn)
            self.transactions += 1

    def _until_next(self) -> float:
        return max(0.0, self._begun + self.transactions / TRANSACTIONS_PER_SECOND - time.monotonic())


def _written(connection: Connection) -> Written:
    row = connection.execute(statement("shop_written")).fetchone()
    assert row is not None  # a sum
    return Written(*row)


def statement(name: str) -> LiteralString:
    """The text of sql/`name`.sql; part of the package, hence literal."""
    text: Any = files("walrelay.cli").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal
