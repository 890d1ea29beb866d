"""Frees a copy that waits for itself.

A snapshot's holder has the table locked (ACCESS SHARE). A session that wants it alone (TRUNCATE, ALTER TABLE) waits for
the holder, a task that comes now queues behind that session, and the holder waits for the task: Postgres sees no
deadlock, since the holder only waits in our program. pg_dump's workers have the same trouble and ask with NOWAIT.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg

from walrelay.errors import SourceError
from walrelay.postgres.snapshot import Snapshot

LOOK_SECONDS = 0.5
_WAITING = (
    "SELECT a.pid, pg_catalog.pg_blocking_pids(a.pid) AS behind FROM pg_catalog.pg_stat_activity a"
    " WHERE a.application_name = %s AND EXISTS (SELECT FROM pg_catalog.pg_locks l"
    " WHERE l.pid = a.pid AND l.locktype = 'relation' AND NOT l.granted)"
)


class TableLockedError(SourceError):
    """A TRUNCATE or ALTER TABLE wanted the table while it was copied."""

    code = "source.table_locked"
    default_hint = "Nothing to do: that session was let through, and the copy begins again."
    retryable = True


class LockWatch:
    """While in the block, ends tasks that wait for a lock in two looks: only a session that waits for us can be in
    their way. `let_through` has the processes of those sessions."""

    def __init__(self, snapshot: Snapshot, application: str) -> None:
        self._connection = snapshot.connection
        self._application = application
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="walrelay-locks", daemon=True)
        self.let_through: set[int] = set()

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
                rows = self._connection.execute(_WAITING, (self._application,)).fetchall()
                waiting = {row.pid: set(row.behind) for row in rows}
                for pid in before & waiting.keys():
                    if ahead := waiting[pid] - waiting.keys():
                        self.let_through |= ahead
                        self._connection.execute("SELECT pg_catalog.pg_cancel_backend(%s)", (pid,))
                before = set(waiting)
