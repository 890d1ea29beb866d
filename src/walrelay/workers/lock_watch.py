"""Frees a copy that waits for itself.

A snapshot's holder has the table locked (ACCESS SHARE). Who wants it for himself (TRUNCATE, ALTER TABLE) waits for the
holder, a task that comes now queues behind him, and the holder waits for the task: Postgres sees no deadlock, since the
holder only waits in our program. pg_dump's workers have the same trouble and ask for their lock with NOWAIT.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg

from walrelay.errors import SourceError
from walrelay.postgres.snapshot import Snapshot

LOOK_SECONDS = 0.5
_WAITING = (
    "SELECT a.pid FROM pg_catalog.pg_stat_activity a"
    " WHERE a.application_name = %s AND EXISTS (SELECT FROM pg_catalog.pg_locks l"
    " WHERE l.pid = a.pid AND l.locktype = 'relation' AND NOT l.granted)"
)


class TableLockedError(SourceError):
    """A TRUNCATE or ALTER TABLE wanted the table while it was copied."""

    code = "source.table_locked"
    default_hint = "A TRUNCATE or ALTER TABLE wanted the table while it was copied; it was let through."
    retryable = True


class LockWatch:
    """While in the block, ends tasks that wait for a lock in two looks: nobody but who waits for us can be in their
    way. `ended` tells whether that happened."""

    def __init__(self, snapshot: Snapshot, application: str) -> None:
        self._connection = snapshot.connection
        self._application = application
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="walrelay-locks", daemon=True)
        self.ended = False

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        before: set[int] = set()
        # Without the connection the snapshot is gone too, and the copy fails by itself.
        with suppress(psycopg.Error):
            while not self._stop.wait(LOOK_SECONDS):
                # Within a transaction Postgres shows the activity of the first look for ever.
                self._connection.execute("SELECT pg_catalog.pg_stat_clear_snapshot()")
                waiting = {row[0] for row in self._connection.execute(_WAITING, (self._application,)).fetchall()}
                for pid in before & waiting:
                    self.ended = True
                    self._connection.execute("SELECT pg_catalog.pg_cancel_backend(%s)", (pid,))
                before = waiting
