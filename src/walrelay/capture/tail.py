"""Whether the server still has the last transaction of the log: it is asked to send it once more.

A server that was put back to an older state, and has since written further than the log goes, looks like one that is
merely ahead. But what it has at the place of the log's last transaction is something else.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Final

import pyarrow.parquet as pq

from walrelay.errors import SourcePutBackError
from walrelay.log.failures import LogDamagedError, named
from walrelay.log.manifest import Manifest
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.postgres.replication import ReplicationConnection, stream_failure
from walrelay.postgres.slot import Slot
from walrelay.wire.replication import Committed, OtherFrame, StreamCutter, Transaction, WholeTransactions

PUBLICATION: Final = "publication.json"
MOST_ROWS: Final = 10_000
"""A larger transaction is not sent twice only to be looked at."""
WAIT_SECONDS: Final = 0.25
CONFIRM_SECONDS: Final = 1.0
_COLUMNS: Final = ["commit_lsn", "end_lsn", "commit_time", "xid"]


def last_transaction(storage: Storage, manifest: Manifest) -> Transaction | None:
    """The last one that changed a table; None when there is none, or it is too large."""
    for entry in reversed(manifest.entries()):
        files = [file for file in entry.files if file.table is not None]
        if not files:
            continue
        path = max(files, key=lambda file: file.last_lsn).path
        with named(storage.location(path)), storage.open(path) as handle, pq.ParquetFile(handle) as parquet:
            group = parquet.read_row_group(parquet.num_row_groups - 1, columns=_COLUMNS)
        commits = group.column("commit_lsn")
        if len(commits) > MOST_ROWS and commits[len(commits) - MOST_ROWS] == commits[-1]:
            return None
        row = [group.column(name)[-1] for name in _COLUMNS]
        return Transaction(row[0].as_py(), row[1].as_py(), row[2].value, row[3].as_py())
    return None


def remember_publication(storage: Storage, mark: str) -> None:
    if _remembered(storage) != mark:
        storage.put(PUBLICATION, json.dumps({"mark": mark}).encode())


def _remembered(storage: Storage) -> str | None:
    try:
        return str(json.loads(storage.read(PUBLICATION))["mark"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamagedError(
            f"{storage.location(PUBLICATION)} is damaged", hint="Delete that file; capture writes it anew."
        ) from error


def sent_again(storage: Storage, manifest: Manifest, slot: Slot, mark: str) -> Transaction | None:
    """The transaction that the server sends once more if it is asked to; None where that is not certain.

    It does not when the slot was confirmed beyond its commit record, which is what a healthy server mostly says, and
    may not when the publication was altered since.
    """
    if slot.confirmed_lsn is None or _remembered(storage) != mark:
        return None
    last = last_transaction(storage, manifest)
    return last if last is not None and slot.confirmed_lsn <= last.commit_lsn else None


def check_last(
    replication: ReplicationConnection, slot: Slot, publication: str, last: Transaction, stopping: threading.Event
) -> bool:
    """Ask for it, and refuse a server that has something else in its place; False when stopped before it came. The slot
    stays as it is.

    pgoutput sends, in commit order, what has a commit record at or behind the position asked for. So the first that
    comes must be this one; and it must come before the server says that it is through with that part of the WAL.
    """
    assert slot.confirmed_lsn is not None
    replication.start(slot.name, publication, Lsn(last.commit_lsn), streaming=False)
    cutter, told_at = StreamCutter(), 0.0
    while not stopping.is_set():
        replication.receive(cutter, WAIT_SECONDS)
        for piece in cutter.pieces():
            if isinstance(piece, OtherFrame) and (error := stream_failure(piece, slot.name)) is not None:
                raise error
            if (came := _committed(piece)) is not None:
                if came != last:
                    raise _put_back(last, f"has one that was committed at {Lsn(came.commit_lsn)}")
                replication.finish(slot.confirmed_lsn)
                return True
        if cutter.keepalive_end >= last.end_lsn and not cutter.in_transaction:
            raise _put_back(last, "has none")
        if time.monotonic() - told_at >= CONFIRM_SECONDS:
            told_at = time.monotonic()
            replication.confirm(slot.confirmed_lsn, slot.confirmed_lsn, reply=True)
    return False


def _committed(piece: object) -> Transaction | None:
    if isinstance(piece, Committed):
        return piece.transaction
    if isinstance(piece, WholeTransactions) and piece.txns.shape[1]:
        return Transaction(*(int(value) for value in piece.txns[:, 0]))
    return None


def _put_back(last: Transaction, instead: str) -> SourcePutBackError:
    return SourcePutBackError(
        f"the log's last transaction was committed at {Lsn(last.commit_lsn)}; the server {instead} in its place",
        context={"commit_lsn": str(Lsn(last.commit_lsn))},
    )
