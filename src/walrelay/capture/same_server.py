"""Whether the server is the one the log came from, and has everything that the log holds (SEMANTICS 4, 5).

Looked at for each connection, before anything is confirmed to the server or changed in the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from walrelay.errors import BEGIN_ANEW, LineageError, LogAheadError, SourcePutBackError, StandbyBehindError
from walrelay.log.identity import write_lineage
from walrelay.log.manifest import Manifest
from walrelay.log.storage import Storage
from walrelay.log.view import HEAD, read_head
from walrelay.log.xids import forget_samples
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import Connection
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.slot import PAGE_HEADER, wal_end


@dataclass(frozen=True, slots=True)
class Held:
    """What the log holds durably: transactions up to `entries_end`, and nothing to be missed up to `head`."""

    entries_end: Lsn
    head: Lsn


def read_held(storage: Storage, manifest: Manifest, lineage: Lineage) -> Held:
    chain = manifest.entries()
    end = chain[-1].end_lsn if chain else lineage.created_lsn
    return Held(end, max(end, read_head(storage) or end))


def check_not_put_back(catalog: Connection, held: Held) -> None:
    """Refuse a server whose WAL ends before the log does: it was put back to an older state.

    Every position of the log is the end of a record that the server had flushed, so a crash takes none of them away. A
    standby is another matter: restarted, it lets clients in before it has replayed again all that it had, and put back
    it replays the same WAL once more. It only has to be waited for.
    """
    end = wal_end(catalog)
    # The end of a record may stand before a page's header, and the next record's place behind it.
    if held.head <= end.inserted + PAGE_HEADER:
        return
    context = {"server": str(end.inserted), "held": str(held.head)}
    if end.standby:
        raise StandbyBehindError(
            f"the standby has replayed its WAL up to {end.inserted}; the log holds everything up to {held.head}",
            context=context,
        )
    raise SourcePutBackError(
        f"the server's WAL ends at {end.inserted}, but the log holds everything up to {held.head}", context=context
    )


def accept_timeline(
    storage: Storage, replication: ReplicationConnection, lineage: Lineage, held: Held, timeline: int
) -> Lineage:
    """Go on, on the timeline of a promoted server, if it has all that the log holds; the log's new lineage."""
    left_at = replication.timeline_history(timeline).get(lineage.timeline)
    if left_at is None:
        raise LineageError(
            f"timeline {timeline} of this server does not come from the log's timeline {lineage.timeline}",
            hint=f"Connect to the server the log came from. Where that is gone: {BEGIN_ANEW}",
        )
    if held.entries_end > left_at:
        raise LogAheadError(
            f"timeline {timeline} begins at {left_at}, but the log holds changes up to {held.entries_end}",
            context={"timeline": timeline, "begins": str(left_at), "held": str(held.entries_end)},
        )
    if held.head > left_at:
        # Nothing was to be had up to there on the old timeline. On the new one there may be; and this comes first: with
        # the new timeline and the old head those changes would be skipped.
        storage.put(HEAD, json.dumps({"lsn": str(left_at)}).encode())
    forget_samples(storage, left_at)
    moved = replace(lineage, timeline=timeline)
    write_lineage(storage, moved)
    return moved
