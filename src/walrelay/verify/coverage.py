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
"""Between two looks at a slot that somebody reads."""
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
                    waits = _something_waits(connection, slot, source.publication, log.end())
                    if waits is False:
                        return True
                    if waits and not is_running():
                        return False
                    if waits is None:
                        looked = 0.0  # it looks for a moment only
        if now > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _something_waits(connection: Connection, slot: str, publication: str, end: Lsn) -> bool | None:
    """Whether the slot has a transaction that ends after `end`, or may have; None while somebody else looks at it, such
    as the comparison of another table. Reads it without taking anything out."""
    given = {"slot": slot, "publication": publication, "most": MOST_CHANGES}
    try:
        rows = connection.execute(statement("waiting_commits"), given).fetchall()
    except psycopg.errors.ObjectInUse:
        return None
    except (psycopg.Error, SourceError):
        return True  # no right to: nobody can say
    if rows and rows[-1].changes >= MOST_CHANGES:
        return True
    return any(Lsn(_COMMIT.unpack_from(bytes(row.data))[3]) > end for row in rows)
