"""Whether the log holds all that a snapshot of the source sees."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import psycopg

from walrelay.errors import SourceError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import Connection, connect
from walrelay.postgres.slot import PAGE_HEADER, find_slot, wal_end
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.sql import statement

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0
"""Between two looks at the slot."""
MOST_CHANGES = 20_000
"""So many changes that the log does not have yet are looked at, where nobody reads the slot."""
_COMMIT = struct.Struct("!cBQQQ")


def log_reaches(
    log: LogReader, source: PostgresSource, lsn: Lsn, patience: float, is_running: Callable[[], bool]
) -> bool:
    """Whether every published transaction that ends up to `lsn` is in the log. Waits while somebody reads the slot, or
    will soon because the pipeline runs; where nobody does, the slot is asked whether anything of the publication is
    there that the log lacks."""
    deadline, looked = time.monotonic() + patience, 0.0
    slot = log.lineage().slot
    while log.head() < lsn:
        now = time.monotonic()
        if now - looked >= LOOK_SECONDS:
            looked = now
            with connect(source, application="walrelay verify") as connection:
                found = find_slot(connection, slot)
                if found is None:
                    return False
                # The slot shows what is flushed, and a snapshot may see more.
                is_flushed = lsn - wal_end(connection).flushed <= PAGE_HEADER
                if found.active_pid is None and is_flushed:
                    if _nothing_waits(connection, slot, source.publication, log.end()):
                        return True
                    if not is_running():
                        return False
        if now > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _nothing_waits(connection: Connection, slot: str, publication: str, end: Lsn) -> bool:
    """Whether the slot has no transaction that ends after `end`. Reads it without taking anything out."""
    given = {"slot": slot, "publication": publication, "most": MOST_CHANGES}
    try:
        rows = connection.execute(statement("waiting_commits"), given).fetchall()
    except (psycopg.Error, SourceError):
        return False  # in use again, or no right to: nobody can say
    if rows and rows[-1].changes >= MOST_CHANGES:
        return False
    return all(Lsn(_COMMIT.unpack_from(bytes(row.data))[3]) <= end for row in rows)
