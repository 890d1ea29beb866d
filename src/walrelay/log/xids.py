"""How far transaction numbers had come when the log was somewhere: samples that capture takes about once a minute.

The log has 32-bit xids, as the stream has them; a snapshot decides by 64-bit ones. The samples say from where on the
log's xids are near enough to a snapshot's to be widened without doubt, and what need not be looked at at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from walrelay.log.failures import LogDamagedError, LogError
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.visibility import HALF_EPOCH, VisibleTransactions

XIDS: Final = "xids.json"
MOST_SAMPLES: Final = 512


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
        put_samples(storage, kept)


def put_samples(storage: Storage, samples: list[XidSample]) -> None:
    """In place of those that are there; for the holder of the lease."""
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
