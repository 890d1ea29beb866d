"""A source whose tables, partitions and publication change at random, from a seed, while clients write to them.

What replication has to live through besides rows: see `world_moves`. The clients draw from the seed alone what they
try; who comes first, and which statement fails for it, is left to them. The journal says what was done to a table.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from psycopg import errors, sql

from walrelay.testing.background import in_background
from walrelay.testing.world_moves import CHANGES, ROWS, Hand, Move, NothingToDoError, Statements, set_publish
from walrelay.testing.world_tables import TABLES, Connection, fill, look_at

__all__ = ["PLACES", "World", "WorldCounts"]

_LOCK_TIMEOUT = "300ms"
"""Copies hold their tables while they read; DDL gives up soon, and the world goes on."""
_SHOWN, _LONGEST = 120, 400
ROWS_BEFORE = 200
PLACES = (
    "copy.during",
    "copy.after_finished",
    "catchup.before",
    "catchup.after",
    "events.before_write",
    "events.after_write",
    "destination.before_commit",
    "destination.ddl",
    "progress.before_record",
    "progress.after_record",
)
"""Failpoints of a pipeline that a changing world may meet."""


@dataclass(slots=True)
class WorldCounts:
    """What happened so far, by kind of move."""

    committed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0


@dataclass(frozen=True, slots=True)
class Deed:
    """A transaction that was committed."""

    client: int
    tables: tuple[int, ...]
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"client {self.client}: " + "; ".join(self.statements)[:_LONGEST]


class World:
    """Ten tables and a publication: `create` them, `run` clients or have them `running`, then `finish`.

    `changes=False` leaves shapes, partitions and publication alone: a world of rows only.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        clients: int = 3,
        *,
        publication: str = "p",
        changes: bool = True,
        pause: float = 0.02,
    ) -> None:
        self.url = url
        self.seed = seed
        self.publication = publication
        self.counts = WorldCounts()
        self.journal: list[Deed] = []
        self._changes = changes
        self._moves = {**ROWS, **CHANGES} if changes else dict(ROWS)
        self._randoms = [Random(f"{seed}/{client}") for client in range(clients)]
        self._pause = pause
        self._tables: tuple[int, ...] = ()
        self._writing = threading.Lock()

    def create(self) -> None:
        """Make the tables, with some rows, and the publication."""
        with psycopg.connect(self.url) as connection:
            for statement in TABLES:
                connection.execute(statement)
            names = [f"w{number}" for number in range(10)]
            rows = connection.execute("SELECT oid::int8 FROM pg_class WHERE relname = ANY (%s)", (names,)).fetchall()
            self._tables = tuple(sorted(oid for (oid,) in rows))
            rng = Random(f"{self.seed}/rows")
            for oid in self._tables:
                fill(connection, rng, look_at(connection, oid, self.publication), ROWS_BEFORE)
            generated = ", publish_generated_columns = stored" if connection.info.server_version >= 180_000 else ""
            publish = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true{})")
            tables = sql.SQL(", ").join(map(sql.Identifier, names))
            connection.execute(publish.format(sql.Identifier(self.publication), tables, sql.SQL(generated)))

    def run(self, transactions: int | None = None, stop: threading.Event | None = None) -> None:
        """Until every client has tried so many transactions, or `stop` is set; raises what no client should meet."""
        failures: list[BaseException] = []

        def work(client: int) -> None:
            try:
                self._work(client, transactions, stop or threading.Event())
            except BaseException as failure:
                failures.append(failure)

        threads = [
            threading.Thread(target=work, args=(client,), name=f"world client {client}", daemon=True)
            for client in range(len(self._randoms))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def running(self) -> AbstractContextManager[None]:
        """Clients work while the body runs."""
        return in_background(lambda stop: self.run(stop=stop), "world")

    def finish(self) -> None:
        """Publish all kinds of changes again: without some, no destination can be as its source. A world of rows only
        always did, and to say so once more would alter the publication."""
        if not self._changes:
            return
        with psycopg.connect(self.url, autocommit=True) as connection:
            kinds = "insert, update, delete, truncate"
            connection.execute(set_publish(sql.Identifier(self.publication), kinds))

    def explained(self, differences: dict[str, list[str]]) -> str:
        """What differs, table by table, each with what was done to it; empty when nothing does."""
        found = [
            f"{name} {'; '.join(wrong)}\n      " + "\n      ".join(self.story(name))
            for name, wrong in differences.items()
            if wrong
        ]
        return "\n  ".join([f"seed {self.seed}:", *found]) if found else ""

    def story(self, table: str, last: int = 12) -> list[str]:
        """What was committed last about a table, by its name of today, and about what all tables share."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT to_regclass(%s)::oid::int8", (table,)).fetchone()
        deeds = [str(deed) for deed in self.journal if not deed.tables or (row and row[0] in deed.tables)]
        return deeds[-last:]

    # ------------------------------------------------------------------------------------------------------ clients

    def _work(self, client: int, transactions: int | None, stop: threading.Event) -> None:
        rng = self._randoms[client]
        with psycopg.connect(self.url, autocommit=True, application_name="world") as connection:
            connection.execute("SET synchronous_commit = on; SET deadlock_timeout = '40ms'")
            connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
            done = 0
            while not stop.is_set() and (transactions is None or done < transactions):
                done += 1
                self._transaction(client, connection, rng)
                time.sleep(rng.uniform(0, 2 * self._pause))  # else a thousand moves would fit before the first copy

    def _transaction(self, client: int, connection: Connection, rng: Random) -> None:
        """One move, or some; sometimes within a savepoint that is rolled back, sometimes all in vain."""
        hand = Hand(connection, rng, self._tables, self.publication)
        moves = rng.choices(list(self._moves), list(self._moves.values()), k=rng.choice((1, 1, 1, 2, 4)))
        in_vain = rng.random() < 0.06
        kinds, said = list[str](), list[str]()
        connection.execute("BEGIN")
        try:
            for move in moves:
                if done := self._do(hand, move, undone=len(moves) > 1 and rng.random() < 0.15):
                    kinds.append(move.__name__)
                    said += done
            connection.execute("ROLLBACK" if in_vain else "COMMIT")
        except psycopg.Error as failure:
            if connection.closed:
                raise
            connection.execute("ROLLBACK")
            with self._writing:
                self.counts.failed[_why(failure)] += 1
            return
        with self._writing:
            if in_vain:
                self.counts.rolled_back += 1
                return
            self.counts.committed.update(kinds)
            if said:
                self.journal.append(Deed(client, tuple(hand.touched), tuple(said)))

    @staticmethod
    def _do(hand: Hand, move: Move, *, undone: bool) -> list[str]:
        connection: psycopg.Connection[Any] = hand.connection
        try:
            statements: Statements = move(hand)
        except NothingToDoError:
            return []
        if undone:
            connection.execute("SAVEPOINT s")
        for statement in statements:
            connection.execute(statement)
        if undone:
            connection.execute("ROLLBACK TO SAVEPOINT s")
            return []
        return [statement.as_string(connection)[:_SHOWN] for statement in statements]


def _why(failure: Exception) -> str:
    """The kind of failure, for the counts. A statement that is wrong in every world is a mistake in a move."""
    if isinstance(failure, errors.SyntaxError):
        raise failure
    return type(failure).__name__
