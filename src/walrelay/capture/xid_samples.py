"""Takes samples of how far transaction numbers have come (`walrelay.log.xids`), about once a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from walrelay.capture.writer import HEARTBEAT
from walrelay.log.manifest import Manifest
from walrelay.log.storage import Storage
from walrelay.log.xids import XidSample, put_samples, read_samples, thinned
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.slot import wal_end
from walrelay.postgres.sql import statement

LEAST_WAL: Final = 64 * 1024
"""A sample costs the server an xid and a record; where nothing happens there is none, so that idle stays idle."""


def take_sample(connection: Connection) -> XidSample | None:
    """Of a primary; None on a standby, where copies are cut by position.

    Flushed when it returns: after a crash that took the end of the WAL away other transactions would end before `lsn`.
    """
    with talking("looking at transaction numbers"):
        before = connection.execute(statement("xids")).fetchone()
        assert before is not None  # a SELECT without FROM has one row
        if before.standby:
            return None
        end = connection.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text AS lsn").fetchone()
        with connection.transaction():
            # Our own disk: a synchronous standby may be away.
            connection.execute("SET LOCAL synchronous_commit = local")
            # Only a transaction that has written something is flushed at its end. This message is not kept.
            own = connection.execute(statement("own_xid"), {"prefix": HEARTBEAT}).fetchone()
    assert end is not None and own is not None
    return XidSample(Lsn.parse(end.lsn), own.xid, before.xmin)


def first_sample(connection: Connection, slot: str, created: Lsn) -> XidSample | None:
    """For a new log: no transaction of it ends before `created`, and none is older than what its slot holds back."""
    with talking("looking at transaction numbers"):
        row = connection.execute(statement("xids_of_slot"), {"slot": slot}).fetchone()
    if row is None or row.standby or row.least is None:
        return None
    return XidSample(created, 0, row.least)


class XidSampler:
    """Takes samples, each durable in the log; for the holder of the lease. Usable from several threads."""

    def __init__(self, storage: Storage, manifest: Manifest, check: Callable[[], None]) -> None:
        self._storage = storage
        self._manifest = manifest
        self._check = check
        self._lock = threading.Lock()

    def begin(self, connection: Connection, slot: str, created: Lsn) -> None:
        """For a new connection: how old the transactions of a new log may be, and where it stands now."""
        with self._lock:
            if not read_samples(self._storage) and not self._manifest.entries():
                self._keep(first_sample(connection, slot, created))
        self.sample(connection)

    def sample(self, connection: Connection) -> None:
        """Another sample, if there was something to be sampled."""
        with self._lock:
            samples = read_samples(self._storage)
            end = wal_end(connection)
            if not end.standby and (not samples or end.inserted - samples[-1].lsn >= LEAST_WAL):
                self._keep(take_sample(connection))

    def _keep(self, sample: XidSample | None) -> None:
        if sample is None:
            return
        entries = self._manifest.entries()
        samples = [*read_samples(self._storage), sample]
        self._check()
        put_samples(self._storage, thinned(samples, entries[0].start_lsn if entries else Lsn(0)))
