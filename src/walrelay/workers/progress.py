"""Live progress, asked of Postgres itself: `pg_stat_progress_copy` knows what each task has read, on any cluster."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

import psycopg

from walrelay.errors import WalrelayError
from walrelay.model.names import TableId, TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.workers.report import Listener

INTERVAL_SECONDS = 0.25
_QUESTION = (
    "SELECT a.application_name AS task, p.pid, p.tuples_processed AS rows FROM pg_catalog.pg_stat_progress_copy p"
    " JOIN pg_catalog.pg_stat_activity a USING (pid) WHERE a.application_name LIKE %s"
)


def task_name(run: str, table: TableId, attempt: int) -> str:
    """The application name of a table's tasks, by which its progress is found."""
    return f"walrelay {run} {table} {attempt}"


class CopyProgress:
    """Tells a listener how many rows have been read. What ended between two looks is missing until the table's end."""

    def __init__(
        self, source: PostgresSource, run: str, names: Callable[[], Mapping[TableId, TableName]], listener: Listener
    ) -> None:
        self._source = source
        self._pattern = f"walrelay {run} %"
        self._names = names
        self._listener = listener
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="walrelay-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Without waiting for the last look."""
        self._stop.set()

    def _watch(self) -> None:
        # Progress is a courtesy: whatever hinders it must not hinder the copy.
        seen: defaultdict[str, dict[int, int]] = defaultdict(dict)
        while not self._stop.is_set():
            with (
                suppress(psycopg.Error, WalrelayError),
                connect(self._source, application="walrelay progress", stopping=self._stop) as look,
            ):
                while not self._stop.wait(INTERVAL_SECONDS):
                    for row in look.execute(_QUESTION, (self._pattern,)).fetchall():
                        seen[row.task][row.pid] = row.rows
                        name = self._names().get(int(row.task.split()[-2]))
                        if name is not None and not self._stop.is_set():
                            self._listener.table_progress(name, sum(seen[row.task].values()))
            self._stop.wait(1)
