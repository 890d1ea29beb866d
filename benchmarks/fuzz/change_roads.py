"""A replication stream's bytes through the code that captures them: cutter, open transactions, walker, decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from benchmarks.fuzz.change_stream import FIRST_TYPE, UNCHANGED, Committed, Image, Planned, Shape
from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.roads import BrokenPromiseError
from walrelay.capture.spill import OpenTransactions
from walrelay.capture.writer import LargeTransaction
from walrelay.decode.base import Tally
from walrelay.decode.changes import ChangeDecoder, SeenMessage, TableChanges
from walrelay.decode.images import struct_of
from walrelay.decode.quarantine import QuarantinedChanges
from walrelay.decode.table import TableDecoder
from walrelay.errors import BadBytesError, WalrelayError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.postgres.replication import stream_failure
from walrelay.wire.copy_binary import Rows
from walrelay.wire.pgoutput import Events, MessageWalker, Relation, part_state
from walrelay.wire.replication import OtherFrame, Part, Piece, RolledBack, StreamCutter, WholeTransactions

Key = tuple[int, str]
"""A relation's number and name, which has the number of its shape in it."""


MOST_READS = 1000
"""About: a long stream is not read byte by byte, short ones are."""


@dataclass
class Decoded:
    """What came out of a stream."""

    changes: dict[Key, list[pa.RecordBatch]] = field(default_factory=dict)
    messages: list[tuple[bytes, bytes]] = field(default_factory=list)
    error: WalrelayError | None = None
    waiting: bool = False
    """At the end a transaction, or a frame, was not whole."""

    def table(self, key: Key, schema: pa.Schema) -> pa.Table:
        """The changes of a table for as long as it has this schema: a damaged description may give it another."""
        batches = takewhile(lambda batch: batch.schema.equals(schema), self.changes.get(key, []))
        return pa.Table.from_batches(batches, schema)


@dataclass(frozen=True, slots=True)
class ChangeReading:
    """How a stream is read."""

    seed: int
    capacity: int
    step: int
    """Bytes received at once, at most."""
    most_transactions: int
    memory_bytes: int
    most_events: int

    def read(self, data: bytes, directory: Path) -> Decoded:
        """Read to the end, or to an error of the kinds that are allowed."""
        decoded, opened = Decoded(), OpenTransactions(directory, self.memory_bytes)
        cutter = StreamCutter(self.capacity, self.most_transactions)
        consumer = _Consumer(decoded, MessageWalker(self.most_events, 4096))
        try:
            for piece in self._pieces(cutter, data):
                consumer.take(piece, opened)
                if opened.in_memory > self.memory_bytes:
                    raise BrokenPromiseError(f"{opened.in_memory} bytes in memory, of {self.memory_bytes}")
        except WalrelayError as error:
            decoded.error = error
        finally:
            decoded.waiting = cutter.in_transaction or len(opened) > 0
            opened.clear()
        return decoded

    def _pieces(self, cutter: StreamCutter, data: bytes) -> Iterator[Piece]:
        rng, at = Random(self.seed), 0
        step = max(self.step, len(data) // MOST_READS)
        while at < len(data):
            room = cutter.room()
            if not 0 < len(room) <= 4 * (self.capacity + at):
                raise BrokenPromiseError(f"room for {len(room)} bytes, after {at} had come")
            some = data[at : at + min(len(room), rng.randint(1, step))]
            room[: len(some)] = some
            cutter.received(len(some))
            at += len(some)
            # As the receiver does: it may fill the buffer before it asks for pieces.
            if cutter.full or rng.random() < 0.8 or at == len(data):
                yield from cutter.pieces()


class _Consumer:
    """Does what the log's writer does with pieces, and keeps what comes out."""

    def __init__(self, decoded: Decoded, walker: MessageWalker) -> None:
        self._decoded = decoded
        self._walker = walker
        self._shapes: dict[Relation, SchemaVersion] = {}
        self._decoder = ChangeDecoder(self._describe)

    def take(self, piece: Piece, opened: OpenTransactions) -> None:
        match piece:
            case WholeTransactions():
                for events in self._walker.walk_whole(piece.buf, piece.start, piece.end, piece.base):
                    self._keep(events, piece.txns, None)
            case Part():
                opened.append(piece)
            case RolledBack():
                opened.undo(piece.xid, piece.subxid)
            case OtherFrame():
                error = stream_failure(piece, "slot")
                if error is not None:
                    raise error
            case _:
                content = opened.take(piece.transaction.xid, streamed=piece.streamed)
                self._take_large(LargeTransaction(piece.transaction, content))

    def _take_large(self, large: LargeTransaction) -> None:
        txn, content = large.transaction, large.content
        txns = np.array([[txn.commit_lsn], [txn.end_lsn], [txn.commit_time], [txn.xid]], dtype=np.int64)
        shapes: dict[int, SchemaVersion] | None = {} if content.streamed else None
        state, base = part_state(), 0
        try:
            for piece in content.pieces():
                walked = self._walker.walk_part(
                    piece, base, streamed=content.streamed, undone=content.undone, state=state
                )
                for events in walked:
                    self._keep(events, txns, shapes)
                base += len(piece)
        finally:
            content.close()
        self._decoder.adopt(shapes or {})

    def _keep(self, events: Events, txns: np.ndarray, shapes: dict[int, SchemaVersion] | None) -> None:
        for one in self._decoder.decode(events, txns, shapes):
            if isinstance(one, SeenMessage):
                self._decoded.messages.append((one.message.prefix.encode(), one.message.content))
                continue
            if isinstance(one, QuarantinedChanges):
                # Refused, though only for its table.
                raise BadBytesError(one.batch.column("reason")[0].as_py(), position=events.base)
            batch = _conformed(one)
            batch.validate(full=True)
            key = (one.version.schema.id, one.version.schema.name.name)
            # A copy: nothing may depend on buffers that are used again.
            self._decoded.changes.setdefault(key, []).append(pa.ipc.read_record_batch(batch.serialize(), batch.schema))

    def _describe(self, relation: Relation, commit_lsn: int, _xid: int) -> SchemaVersion:
        known = self._shapes.get(relation)
        if known is None:
            columns = tuple(_column(column.name, column.type) for column in relation.columns)
            schema = TableSchema(relation.id, TableName(relation.schema, relation.name), columns)
            known = self._shapes[relation] = SchemaVersion(schema, len(self._shapes) + 1, Lsn(commit_lsn))
        return known


def _column(name: str, oid: int) -> Column:
    if not FIRST_TYPE <= oid < FIRST_TYPE + len(KINDS):
        return Column(name, PgType(oid, "unheard of", schema="public"))
    kind = KINDS[oid - FIRST_TYPE]
    return Column(name, kind.type, as_text=kind.as_text)


def _conformed(one: TableChanges) -> pa.RecordBatch:
    """With all columns but the version's number; words as plain strings."""
    batch = one.batch
    present = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
    wanted = expected_schema(present["row"].type)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(batch.num_rows, f.type) if f.name not in present else _plain(present[f.name], f.type)
            for f in wanted
        ],
        schema=wanted,
    )


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def expected_schema(row: pa.DataType) -> pa.Schema:
    numbers = [(name, pa.int64()) for name in ("commit_lsn", "end_lsn", "ordinal", "xid")]
    time = ("commit_time", pa.timestamp("us", "UTC"))
    rest = [("op", pa.string()), ("row", row), ("old", row), ("old_kind", pa.string())]
    return pa.schema([*numbers, time, *rest, ("unchanged", pa.list_(pa.string()))])


EPOCH_MICROS = 946_684_800_000_000


def expected_tables(committed: list[Committed]) -> dict[Key, pa.Table]:
    """What must come out, by way of the decoder of rows alone."""
    found: dict[Key, tuple[Shape, list[tuple[Committed, int, Planned]]]] = {}
    for txn in committed:
        for ordinal, change in enumerate(txn.changes):
            key = (change.shape.id, change.shape.name)
            found.setdefault(key, (change.shape, []))[1].append((txn, ordinal, change))
    return {key: _expected(shape, those) for key, (shape, those) in found.items()}


def _expected(shape: Shape, those: list[tuple[Committed, int, Planned]]) -> pa.Table:
    columns = tuple(_column(f"column {place}", FIRST_TYPE + number) for place, number in enumerate(shape.kinds))
    decoder = TableDecoder(TableSchema(shape.id, TableName("public", shape.name), columns), Tally())
    rows = _images(decoder, [change.row for _, _, change in those])
    olds = _images(decoder, [change.old for _, _, change in those])
    names = [column.name for column in columns]
    unchanged = [
        [name for name, value in zip(names, change.row or (), strict=False) if value is UNCHANGED] or None
        for _, _, change in those
    ]
    txns = [txn for txn, _, _ in those]
    schema = expected_schema(rows.type)
    arrays = [
        pa.array([txn.commit_lsn for txn in txns], pa.int64()),
        pa.array([txn.end_lsn for txn in txns], pa.int64()),
        pa.array([ordinal for _, ordinal, _ in those], pa.int64()),
        pa.array([txn.xid for txn in txns], pa.int64()),
        pa.array([txn.time + EPOCH_MICROS for txn in txns], pa.int64()).view(schema.field("commit_time").type),
        pa.array([change.op for _, _, change in those], pa.string()),
        rows,
        olds,
        pa.array([change.old_kind for _, _, change in those], pa.string()),
        pa.array(unchanged, pa.list_(pa.string())),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _images(decoder: TableDecoder, images: list[Image | None]) -> pa.StructArray:
    """The images as structs, laid into one buffer."""
    width = len(decoder.arrow_schema)
    buf = bytearray(b"\0")
    starts, lengths = np.zeros((width, len(images)), np.int32), np.full((width, len(images)), -1, np.int32)
    for row, image in enumerate(images):
        for column, value in enumerate(image or ()):
            if value is not None and value is not UNCHANGED:
                starts[column, row], lengths[column, row] = len(buf), len(value)
                buf += value
    batch = decoder.decode(Rows(np.frombuffer(buf, np.uint8), starts, lengths, 0))
    mask = pa.array([image is None for image in images])
    return struct_of(batch.columns, list(decoder.arrow_schema), len(images), mask)


def random_change_reading(rng: Random) -> ChangeReading:
    """Buffers and reads from tiny to larger than all streams."""
    return ChangeReading(
        rng.getrandbits(32),
        capacity=rng.choice((64, 64, 100, 300, 1000, 4096, 65_536, 1_000_000)),
        step=rng.choice((1, 7, 100, 1000, 65_536, 1_000_000)),
        most_transactions=rng.choice((1, 2, 7, 1000)),
        memory_bytes=rng.choice((0, 100, 3000, 10_000_000)),
        most_events=rng.choice((4, 5, 30, 1000)),
    )
