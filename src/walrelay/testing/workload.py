"""Concurrent clients that do to a database, from a seed, all that replication has to carry over."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg import errors, sql

from walrelay.testing.background import in_background
from walrelay.testing.sample import Connection, Sample, take_sample
from walrelay.testing.workload_plans import ACCOUNTS, DDL_KINDS, Mix, Plan, plans

__all__ = ["DDL_KINDS", "Workload", "WorkloadCounts"]

_TABLES = ("items", "pairs", "loose", "coded", "ledger", "accounts_a", "accounts_b", "readings", "marks")
_LEAVES = ("readings_0", "readings_1", "readings_rest")
_KEYS = {
    "items": ("id",),
    "pairs": ("a", "b"),
    "coded": ("code",),
    "accounts_a": ("id",),
    "accounts_b": ("id",),
    "marks": ("id",),
} | dict.fromkeys(("readings", *_LEAVES), ("id", "region"))
_BALANCE = 1000
# Ten lost deadlocks in a row are bad luck, and a plan that always loses one is not worth more.
_RETRIES = 10


@dataclass(slots=True)
class WorkloadCounts:
    """What happened. Only for a look: nothing that checks a replica may rely on what clients believe."""

    committed: int = 0
    rolled_back: int = 0
    deadlocks: int = 0
    serialization_failures: int = 0
    conflicts: int = 0
    """Transactions that broke a unique index, in a race with another client: rolled back, not tried again."""
    given_up: int = 0
    lost: int = 0
    """Transactions whose connection went away before COMMIT was sent."""
    unknown: int = 0
    """Transactions whose connection went away after that: committed or not."""
    reconnects: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """Of the transactions that committed, by kind; those rolled back to a savepoint included."""

    def add(self, other: WorkloadCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Workload:
    """Clients in threads, each with its own random numbers: `create` the tables, `run`, and `sample` meanwhile.

    `large_rows` is the size of the rare large transactions (0: none), `ddl` which changes of columns are made
    (`DDL_KINDS`; none unless asked), `patience` how many seconds a client tries to reconnect before it gives up.
    What clients do depends on the seed alone; how it ends depends on who comes first. A second `run` goes on where
    the first one ended. The server may be restarted and connections cut meanwhile.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        clients: int = 4,
        *,
        publication: str = "p",
        via_partition_root: bool = False,
        large_rows: int = 20_000,
        ddl: Collection[str] = (),
        patience: float = 60,
    ) -> None:
        if unknown := set(ddl) - set(DDL_KINDS):
            raise ValueError(f"no such change of columns: {', '.join(sorted(unknown))}; there are {DDL_KINDS}")
        self.url = url
        self.publication = publication
        self._via_root = via_partition_root
        self._patience = patience
        self._plans = [plans(seed, Mix(client, large_rows, tuple(ddl))) for client in range(clients)]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables as the publication has them: `public.items`, …"""
        leaves = () if self._via_root else _LEAVES
        names = [name for name in _TABLES if self._via_root or name != "readings"]
        return tuple(f"public.{name}" for name in (*names, *leaves))

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The identity columns of the tables that have some, for `Replica`."""
        found = ((table, _KEYS.get(table.removeprefix("public."))) for table in self.tables)
        return {table: key for table, key in found if key is not None}

    def create(self, connection: Connection) -> None:
        """Make the tables, all empty, and the publication."""
        names = sql.SQL(", ").join(map(sql.Identifier, _TABLES))
        publish = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = {})")
        with connection.transaction():
            connection.execute(_statements())
            connection.execute(publish.format(sql.Identifier(self.publication), names, sql.Literal(self._via_root)))

    def sample(self, connection: Connection) -> Sample:
        """What all tables hold at one instant; see `take_sample`."""
        return take_sample(connection, self.publication)

    def run(
        self,
        transactions: int | None = None,
        seconds: float | None = None,
        stop: threading.Event | None = None,
    ) -> WorkloadCounts:
        """Run until all clients together have tried so many transactions, or the time is up, or `stop` is set.

        Returns when every client has ended its last transaction; raises what a client could not cope with.
        """
        if transactions is None and seconds is None and stop is None:
            raise ValueError("say when to end: transactions, seconds or stop")
        halt = _Halt(stop, None if seconds is None else time.monotonic() + seconds)
        self._open_accounts(halt)
        each, more = divmod(transactions or 0, len(self._plans))
        clients = [
            _Client(self.url, number, planned, halt, self._patience, each + (number < more) if transactions else None)
            for number, planned in enumerate(self._plans)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        counts = WorkloadCounts()
        for client in clients:
            if client.failure is not None:
                raise client.failure
            counts.add(client.counts)
        return counts

    def running(self) -> AbstractContextManager[None]:
        """Run while the body runs; what failed in a client is raised at the end."""
        return in_background(lambda stop: self.run(stop=stop), "workload")

    def _open_accounts(self, halt: _Halt) -> None:
        """Fill both tables in one transaction, unless they are filled; here, so that a log from `create` on has it."""
        fill: tuple[LiteralString, ...] = (
            "INSERT INTO accounts_a SELECT g, %s FROM generate_series(1, %s) AS g ON CONFLICT DO NOTHING",
            "INSERT INTO accounts_b SELECT g, %s FROM generate_series(1, %s) AS g ON CONFLICT DO NOTHING",
        )
        while not halt.is_due():
            try:
                connection = _connect(self.url, self._patience, halt)
            except _HaltedError:
                return
            # Whatever became of a transaction whose connection was cut, it can be tried again.
            with suppress(psycopg.OperationalError), connection:
                with connection.transaction():
                    for statement in fill:
                        connection.execute(statement, (_BALANCE, ACCOUNTS))
                return


def _statements() -> LiteralString:
    """The SQL of the tables; part of the package, hence literal."""
    text: Any = files("walrelay.testing").joinpath("sql/workload.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal


class _Halt:
    """When to end: asked to, out of time, or because a client failed."""

    def __init__(self, stop: threading.Event | None, deadline: float | None) -> None:
        self._stop = stop
        self._deadline = deadline
        self.failed = threading.Event()

    def is_due(self) -> bool:
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return late or self.failed.is_set() or (self._stop is not None and self._stop.is_set())


class _HaltedError(Exception):
    """The end came while a client had no connection."""


def _connect(url: str, patience: float, halt: _Halt) -> Connection:
    """Connect; keep trying while the server is away. Raises the last failure when patience is at an end."""
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="workload")
            # On, whatever the server's default is: transactions that want it off say so. A deadlock among us should
            # not take the default second; only a superuser may say so.
            connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
            connection.execute(
                "SELECT set_config('deadlock_timeout', '40ms', false) FROM pg_roles"
                " WHERE rolname = current_user AND rolsuper"
            )
            return connection
        except psycopg.OperationalError:
            if halt.is_due():
                raise _HaltedError from None
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


class _Client(threading.Thread):
    """One client: takes plan after plan and carries it out."""

    def __init__(
        self, url: str, number: int, planned: Iterator[Plan], halt: _Halt, patience: float, transactions: int | None
    ) -> None:
        super().__init__(name=f"workload client {number}", daemon=True)
        self.counts = WorkloadCounts()
        self.failure: BaseException | None = None
        self._url = url
        self._planned = planned
        self._halt = halt
        self._patience = patience
        self._left = transactions
        self._connection: Connection | None = None

    def run(self) -> None:
        try:
            while self._left != 0 and not self._halt.is_due():
                self._left = None if self._left is None else self._left - 1
                self._carry_out(next(self._planned))
        except _HaltedError:
            pass
        except BaseException as failure:
            self.failure = failure
            self._halt.failed.set()
        finally:
            if self._connection is not None:
                self._connection.close()

    def _carry_out(self, plan: Plan) -> None:
        for attempt in range(_RETRIES):
            # The other one may be a large transaction: give it time.
            time.sleep(0.01 * attempt)
            connection = self._connected()
            try:
                self._execute(connection, plan)
                return
            except errors.DeadlockDetected:
                self.counts.deadlocks += 1
            except errors.SerializationFailure:
                self.counts.serialization_failures += 1
            except errors.UniqueViolation:
                self.counts.conflicts += 1
                self._roll_back(connection)
                return
            except (psycopg.OperationalError, psycopg.InterfaceError):
                if not connection.closed:
                    raise
                self.counts.lost += 1
                return
            self._roll_back(connection)
        self.counts.given_up += 1

    def _execute(self, connection: Connection, plan: Plan) -> None:
        connection.execute("BEGIN ISOLATION LEVEL " + plan.isolation)
        if plan.asynchronous:
            connection.execute("SET LOCAL synchronous_commit = off")
        for step in plan.steps:
            connection.execute(step.sql, step.parameters or None)
        if not plan.commits:
            connection.execute("ROLLBACK")
            self.counts.rolled_back += 1
            return
        try:
            connection.execute("COMMIT")
        except (psycopg.OperationalError, psycopg.InterfaceError):
            if not connection.closed:
                raise
            self.counts.unknown += 1
            return
        self.counts.committed += 1
        self.counts.operations.update(plan.kinds)

    @staticmethod
    def _roll_back(connection: Connection) -> None:
        # If the connection goes away now, the transaction is rolled back as well.
        with suppress(psycopg.OperationalError, psycopg.InterfaceError):
            connection.execute("ROLLBACK")

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self.counts.reconnects += self._connection is not None
            self._connection = _connect(self._url, self._patience, self._halt)
        return self._connection
