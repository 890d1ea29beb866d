"""How far transaction numbers had come when the log was somewhere: samples that capture takes about once a minute.

The log has 32-bit xids, as the stream has them; a snapshot decides by 64-bit ones. The samples say from where on the
log's xids are near enough to a snapshot's to be widened without doubt, and what need not be looked at at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from walrelay.log.failures import LogDamagedError, LogError
from walrelay.log.manifest import Manifest
from walrelay.log.storage import Storage
from walrelay.log.writer import HEARTBEAT
from walrelay.model.lsn import Lsn
from walrelay.model.visibility import HALF_EPOCH, VisibleTransactions
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.slot import wal_end
from walrelay.postgres.sql import statement

XIDS: Final = "xids.json"
MOST_SAMPLES: Final = 512
LEAST_WAL: Final = 64 * 1024
"""A sample costs the server an xid and a record; where nothing happens there is none, so that idle stays idle."""


class XidsUnknownError(LogError):
    """The log cannot tell which transactions a copy has seen."""

    code = "log.xids_unknown"
    default_hint = (
        "A transaction at the source may be open since before capture took its first sample: end it. The table is"
        " copied again by itself. Else `walrelay resync` copies it again."
    )
    retryable = True


@dataclass(frozen=True, slots=True)
class XidSample:
    """Every transaction that ends at or before `lsn` has an xid below `below`; every later one, `least` or above.

    64-bit, which never wrap. How they are taken makes it so, whatever a commit waits for (flush, a synchronous
    standby) between its record in the WAL and its being visible:
    1. a snapshot's xmin: what is not finished now, and all that is still to come, is at or above it (`least`);
    2. the end of the WAL: whoever ends behind it had not finished in 1;
    3. an xid of our own: whoever has his record before 2 had his xid then, so it is less (`below`). The snapshot's xmax
       would not do: it is behind the last one that is *finished*, and one whose record is in the WAL may not be yet.
    """

    lsn: Lsn
    below: int
    least: int


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


def read_samples(storage: Storage) -> list[XidSample]:
    """In the order of their positions."""
    try:
        body = storage.read(XIDS)
    except FileNotFoundError:
        return []
    try:
        found = [XidSample(Lsn.parse(lsn), int(below), int(least)) for lsn, below, least in json.loads(body)]
    except (ValueError, TypeError) as error:
        raise LogDamagedError(
            f"{storage.location(XIDS)} is damaged", hint="Delete that file; capture writes it anew."
        ) from error
    return sorted(found, key=lambda one: one.lsn)


def forget_samples(storage: Storage, after: Lsn) -> None:
    """Without those behind `after`: on another timeline other transactions end there."""
    samples = read_samples(storage)
    kept = [one for one in samples if one.lsn <= after]
    if len(kept) < len(samples):
        _put(storage, kept)


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
        _put(self._storage, thinned(samples, entries[0].start_lsn if entries else Lsn(0)))


def _put(storage: Storage, samples: list[XidSample]) -> None:
    storage.put(XIDS, json.dumps([[str(one.lsn), one.below, one.least] for one in samples]).encode())


def thinned(samples: Iterable[XidSample], start: Lsn) -> list[XidSample]:
    """Without those from before the log's start, but for the last of them, which says how old its xids may be. Of too
    many every second of the older half goes: the newer, the closer they are."""
    kept = sorted(samples, key=lambda one: one.lsn)
    while len(kept) > 1 and kept[1].lsn <= start:
        del kept[0]
    while len(kept) > MOST_SAMPLES:
        half = len(kept) // 2
        kept[:half] = kept[:half:2]
    return kept


def catch_up_start(samples: Iterable[XidSample], start: Lsn, visible: str) -> Lsn:
    """From where on a copy under a snapshot that sees `visible` has to look at the log, which begins at `start`.

    With a sample of which `below` is at most the snapshot's xmin, every transaction that ends up to its position has an
    xid below xmin: it was finished when the snapshot was taken, and is in the copy. Behind it xids are at least
    `least`, and must be so near to the snapshot that their 32 bits say which is meant. What ends before the log's start
    is not in it, so of a sample from there only `least` matters.
    """
    snapshot = VisibleTransactions.parse(visible)
    usable = [one for one in samples if one.below <= snapshot.xmin or one.lsn <= start]
    chosen = max(usable, key=lambda one: one.lsn, default=None)
    if chosen is None:
        raise XidsUnknownError(f"the log does not say how old its transactions are, as seen from xid {snapshot.xmin}")
    if snapshot.xmax - chosen.least >= HALF_EPOCH:
        raise XidsUnknownError(
            f"the log from {chosen.lsn} on may hold transactions that are {snapshot.xmax - chosen.least} xids older"
            " than the copy, more than 32 bits can tell apart"
        )
    return max(chosen.lsn, start)
