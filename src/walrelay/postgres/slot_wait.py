"""Names what a slot's creation waits for: every transaction that was writing when it began must end first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from walrelay.errors import WalrelayError
from walrelay.model.notice import Notice
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.sql import statement

PATIENCE_SECONDS = 5.0
"""A transaction of this length is nothing that anybody would want to hear of."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has written and is not over."""

    gid: str | None
    """Its name, when it is prepared; it then belongs to no session and outlives every restart."""
    quoted_gid: str | None
    pid: int | None
    application: str
    state: str
    age: timedelta

    def __str__(self) -> str:
        if self.gid is not None:
            return f"the prepared transaction «{self.gid}» ({_long(self.age)} old)"
        who = ", ".join(word for word in (self.application, self.state) if word)
        return f"a transaction of pid {self.pid} ({who + ', ' if who else ''}{_long(self.age)} old)"

    @property
    def remedy(self) -> str:
        if self.gid is not None:
            return f"COMMIT PREPARED {self.quoted_gid}; or ROLLBACK PREPARED {self.quoted_gid};"
        return f"SELECT pg_terminate_backend({self.pid});"


def open_transactions(
    connection: Connection, *, waiting: int | None = None, old: timedelta = timedelta(0)
) -> tuple[OpenTransaction, ...]:
    """Those that the process `waiting` waits for; without one, all that are older than `old`. The oldest first."""
    with talking("looking for open transactions"):
        rows = connection.execute(statement("open_transactions"), {"waiting": waiting, "old": old}).fetchall()
    return tuple(
        OpenTransaction(
            row.gid, row.quoted, row.pid, row.application or "", row.state or "", timedelta(seconds=row.age or 0)
        )
        for row in rows
    )


@contextmanager
def naming_what_is_waited_for(
    source: PostgresSource, waiting: int, what: str, notify: Callable[[str], None]
) -> Iterator[None]:
    """While in the block, say which transactions `waiting` waits for, each once, from the fifth second on."""
    done = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(source, waiting, what, notify, done), name="walrelay-slot-wait", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(
    source: PostgresSource, waiting: int, what: str, notify: Callable[[str], None], done: threading.Event
) -> None:
    said: set[tuple[str | None, int | None]] = set()
    while not done.wait(PATIENCE_SECONDS):
        # Who waits finds out by itself when the source is gone.
        with (
            suppress(WalrelayError, psycopg.Error),
            connect(source, application="walrelay slot watch", stopping=done) as connection,
        ):
            found = open_transactions(connection, waiting=waiting)
            fresh = [one for one in found if (one.gid, one.pid) not in said]
            if fresh and not done.is_set():
                notify(
                    Notice.warning(
                        "waiting for open transactions of the source",
                        f"{what} waits for the end of {listed(fresh)}. To end it: {' '.join(o.remedy for o in fresh)}",
                        what=what,
                        pids=[one.pid for one in fresh],
                    )
                )
                said.update((one.gid, one.pid) for one in fresh)


def listed(transactions: Sequence[OpenTransaction]) -> str:
    """The first few, and how many more."""
    more = f" and {len(transactions) - 3} more" if len(transactions) > 3 else ""
    return ", ".join(str(one) for one in transactions[:3]) + more


def _long(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
