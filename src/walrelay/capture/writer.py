"""The log's writer: whole transactions in, durable segments out. One at a time (lease), one thread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from walrelay.capture.spill import OpenTransaction
from walrelay.config.settings import CaptureSettings
from walrelay.decode.changes import ChangeDecoder, SeenMessage, TableChanges
from walrelay.decode.quarantine import QuarantinedChanges
from walrelay.failpoints import hit
from walrelay.log.lease import Lease
from walrelay.log.manifest import FIRST_SEQUENCE, Entry, Manifest, SentPart, Treated
from walrelay.log.schemas import Described, SchemaLibrary
from walrelay.log.segment import Segment
from walrelay.log.storage import Storage
from walrelay.log.view import HEAD, read_head
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion
from walrelay.wire.pgoutput import LogicalMessage, MessageWalker, Relation, part_state
from walrelay.wire.replication import COMMIT_TIME, END_LSN, Transaction, WholeTransactions

HEAD_AGE = timedelta(seconds=1)
"""How often at most the head moves for transactions without content."""
HEARTBEAT = "walrelay.heartbeat"
"""The prefix of our own messages, which are not kept."""


@dataclass(frozen=True, slots=True)
class LargeTransaction:
    """A committed transaction whose bytes were kept until now."""

    transaction: Transaction
    content: OpenTransaction


class LogWriter:
    """Appends to the log at its head. `durable_lsn` is what may be acknowledged as held (see `ack`)."""

    def __init__(
        self,
        storage: Storage,
        lease: Lease,
        manifest: Manifest,
        *,
        created_lsn: Lsn,
        settings: CaptureSettings,
        describe: Callable[[Relation, Lsn, int], Described],
        told: Callable[[LogicalMessage, Lsn, int], None] = lambda _message, _lsn, _xid: None,
        published: Callable[[Entry], None] = lambda _entry: None,
    ) -> None:
        self._storage = storage
        self._lease = lease
        self._manifest = manifest
        self._settings = settings
        self._describe = describe
        self._told = told
        self._published = published
        chain = manifest.entries()
        self._sequence = chain[-1].last + 1 if chain else FIRST_SEQUENCE
        self.entries_end: Lsn = chain[-1].end_lsn if chain else created_lsn
        self.durable_lsn: Lsn = max(self.entries_end, read_head(storage) or created_lsn)
        self._schemas = SchemaLibrary(storage, self.durable_lsn)
        self._treated = chain[-1].treated if chain else {}
        self._segment = self._next_segment()
        self._walker = MessageWalker()
        self.begin_stream()

    def begin_stream(self) -> None:
        """A new connection: the server describes every relation again."""
        self._decoder = ChangeDecoder(self._version_of, self._settings.special_values)

    @property
    def idle(self) -> bool:
        """Nothing is in an unpublished segment."""
        return self._segment.empty

    @property
    def segment(self) -> Segment:
        return self._segment

    def special_counts(self) -> Treated:
        """Values treated by policy since the log began, by table and kind."""
        return {table: dict(counts) for table, counts in list(self._segment.treated.items())}

    def take(self, item: WholeTransactions | LargeTransaction) -> None:
        """Add whole transactions to the open segment."""
        if isinstance(item, WholeTransactions):
            self._take_whole(item)
        else:
            self._take_large(item)

    def advance(self, lsn: Lsn) -> None:
        """The source has nothing for us up to `lsn`, and nothing is in flight: hold that durably (SEMANTICS 3)."""
        if not self.idle or lsn <= self.durable_lsn:
            return
        self._put_head(lsn)

    def _put_head(self, lsn: Lsn) -> None:
        hit("head.before_advance")
        self._lease.check()
        self._storage.put(HEAD, json.dumps({"lsn": str(lsn)}).encode())
        self.durable_lsn = lsn

    def due(self, *, busy: bool) -> bool:
        """Whether the open segment should be published: it is large, or old; older when more is waiting."""
        if self._segment.empty:
            return False
        return self._segment.bytes >= self._settings.segment_bytes or self.due_in(busy=busy) <= 0

    def due_in(self, *, busy: bool = False) -> float:
        """Seconds until the open segment is old enough."""
        age = self._settings.segment_age_busy if busy else self._settings.segment_age
        if not self._segment.has_content:
            age = max(age, HEAD_AGE)
        return self._segment.opened_at + age.total_seconds() - time.monotonic()

    def publish(self) -> None:
        """Make the open segment part of the log."""
        if self._segment.empty:
            return
        if not self._segment.has_content:
            # Transactions without anything for us; older servers send their borders.
            self._put_head(self._segment.end_lsn)
            self._segment = self._next_segment()
            return
        hit("segment.before_publish")
        entry = self._segment.finish()
        self._schemas.save()
        self._lease.check()
        self._manifest.publish(entry)
        hit("segment.after_publish")
        self._sequence += 1
        self.entries_end = entry.end_lsn
        self._treated = entry.treated
        self.durable_lsn = max(self.durable_lsn, entry.end_lsn)
        self._segment = self._next_segment()
        self._published(entry)

    def abandon(self) -> None:
        """Forget the open segment, after a failure; the source sends it again."""
        self._segment.abandon()
        self._segment = self._next_segment()
        self._schemas = SchemaLibrary(self._storage, self.durable_lsn)

    def _next_segment(self) -> Segment:
        return Segment(
            self._storage,
            sequence=self._sequence,
            epoch=self._lease.epoch,
            start_lsn=self.entries_end,
            memory_bytes=self._settings.memory_bytes,
            treated=self._treated,
        )

    def _version_of(self, relation: Relation, commit_lsn: int, xid: int) -> SchemaVersion:
        lsn = Lsn(commit_lsn)
        return self._schemas.version_of(relation, lsn, lambda relation: self._describe(relation, lsn, xid))

    def _take_whole(self, item: WholeTransactions) -> None:
        ends = item.txns[END_LSN]
        held = self._held
        for events in self._walker.walk_whole(item.buf, item.start, item.end, item.base):
            self._segment.add(self._new_only(self._decoder.decode(events, item.txns), held))
            self._note_parts()
        count = int((ends > held).sum())
        if count:
            self._segment.committed(count, Lsn(int(ends[-1])), int(item.txns[COMMIT_TIME, -1]))

    def _take_large(self, item: LargeTransaction) -> None:
        txn = item.transaction
        content = item.content
        try:
            if txn.end_lsn <= self._held:
                return
            txns = _one_transaction(txn)
            shapes: dict[int, SchemaVersion] | None = {} if content.streamed else None
            state, undone, base = part_state(), content.undone, 0
            for piece in content.pieces():
                walked = self._walker.walk_part(piece, base, streamed=content.streamed, undone=undone, state=state)
                for events in walked:
                    self._segment.add(self._new_only(self._decoder.decode(events, txns, shapes), self._held))
                    self._note_parts()
                base += len(piece)
            if shapes:
                self._decoder.adopt(shapes)
        finally:
            content.close()
        self._segment.committed(1, Lsn(txn.end_lsn), txn.commit_time)

    def _note_parts(self) -> None:
        self._segment.parts += [SentPart(leaf, root, Lsn(lsn)) for leaf, root, lsn in self._decoder.parts]
        self._decoder.parts.clear()

    @property
    def _held(self) -> int:
        """Transactions that end up to here are in the log or in the open segment."""
        return max(self.durable_lsn, self._segment.end_lsn)

    def _new_only(
        self, changes: Iterator[TableChanges | QuarantinedChanges | SeenMessage], held: int
    ) -> Iterator[TableChanges | QuarantinedChanges | SeenMessage]:
        """Without what is held already, should the server send it again, and without our own heartbeats."""
        for one in changes:
            if isinstance(one, SeenMessage):
                self._told(one.message, Lsn(one.commit_lsn), one.xid)
                if one.end_lsn > held and one.message.prefix != HEARTBEAT:
                    if not one.message.transactional:
                        self._segment.committed(0, Lsn(one.end_lsn), 0)
                    yield one
                continue
            ends = one.batch.column(1)
            if ends[0].as_py() > held:
                yield one
                continue
            fresh = one.batch.filter(pc.greater(ends, held))
            if fresh.num_rows:
                yield replace(one, batch=fresh)


def _one_transaction(txn: Transaction) -> npt.NDArray[np.int64]:
    return np.array([[txn.commit_lsn], [txn.end_lsn], [txn.commit_time], [txn.xid]], dtype=np.int64)
