"""Compile every kernel once, in set-up, so that no user waits for it: `python -m walrelay.decode.warm`.

Where they are kept, and when they are dropped, says `wire/kernel_places.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pyarrow as pa

from walrelay.decode.base import ARROW, TEXT, Fields, Tally, Target
from walrelay.decode.changes import ChangeDecoder
from walrelay.decode.json_text import json_objects
from walrelay.decode.registry import BUILTIN, EXTENSION, decoder_for
from walrelay.decode.sha256 import sha256_hex
from walrelay.errors import BadBytesError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.notice import Notice
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema, TypeField
from walrelay.wire.copy_binary import CopyBuffer
from walrelay.wire.copy_bytes import ByteBuffer
from walrelay.wire.kernel_places import kernel_place
from walrelay.wire.pgoutput import NOTHING_UNDONE, MessageWalker, part_state, whole_frames
from walrelay.wire.replication import StreamCutter, WholeTransactions


def sample_types() -> list[PgType]:
    """A type for every row of the registry."""
    int4 = PgType(23, "int4")
    base = [PgType(0, name) for name in BUILTIN]
    extensions = [PgType(0, name, schema="public", extension=owner) for owner, name in EXTENSION]
    span = PgType(0, "int4range", kind="range", element=int4)
    return [
        *base,
        *extensions,
        PgType(0, "numeric", modifier=((10 << 16) | 2) + 4),
        PgType(0, "_int4", kind="array", element=int4),
        PgType(0, "pair", kind="composite", fields=(TypeField("a", int4),)),
        span,
        PgType(0, "int4multirange", kind="multirange", element=span),
    ]


def warm(target: Target) -> None:
    """Run every decoder once over a NULL and over bytes that no type takes in full; running is what compiles."""
    for type_ in sample_types():
        decoder = decoder_for(type_, target)
        for values in (
            [None, None],
            [b"\x01" + b"\0" * 15, b"\x01" + b"\0" * 15],
            [b"\0" * 8, None],
            [b"\xc3\xa9"] * 2,
        ):
            try:
                decoder.decode(Fields.of(list(values)), Tally(target))
            except BadBytesError:
                continue


def warm_walk() -> None:
    buffer = CopyBuffer(1, framed=False, capacity=64)
    stream = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1\xff\xff\xff\xff" + b"\xff\xff"
    buffer.room()[: len(stream)] = stream
    buffer.received(len(stream))
    buffer.rows()
    ByteBuffer(64).rows()


def warm_changes() -> None:
    """Take one inserted row through the change road, as a whole and as a part."""
    relation = b"R" + bytes(4) + b"s\0t\0d" + (1).to_bytes(2) + b"\1a\0" + (23).to_bytes(4) + b"\xff" * 4
    insert = b"I" + bytes(4) + b"N" + (1).to_bytes(2) + b"b" + (4).to_bytes(4) + bytes(4)
    begin = b"B" + (1).to_bytes(8) + bytes(12)
    commit = b"C\0" + (1).to_bytes(8) + (2).to_bytes(8) + bytes(8)
    frames = [b"w" + bytes(24) + message for message in (begin, relation, insert, commit)]
    stream = b"".join(b"d" + (len(frame) + 4).to_bytes(4) + frame for frame in frames)
    schema = TableSchema(0, TableName("s", "t"), (Column("a", PgType(23, "int4")),))
    decoder = ChangeDecoder(lambda _relation, _lsn, _xid: SchemaVersion(schema, 1, Lsn(0)))
    cutter, walker = StreamCutter(), MessageWalker()
    cutter.room()[: len(stream)] = stream
    cutter.received(len(stream))
    for piece in cutter.pieces():
        assert isinstance(piece, WholeTransactions)
        for events in walker.walk_whole(piece.buf, piece.start, piece.end, piece.base):
            list(decoder.decode(events, piece.txns))
        part = piece.buf[piece.start : piece.end].copy()
        whole_frames(part)
        list(walker.walk_part(part, 0, streamed=False, undone=NOTHING_UNDONE, state=part_state()))


def warm_json() -> None:
    """Write one value of every kind, and a NULL, as JSON."""
    kinds = [pa.bool_(), pa.int64(), pa.float64(), pa.decimal128(38), pa.string(), pa.binary(), pa.list_(pa.bool_())]
    for kind in kinds:
        json_objects(pa.StructArray.from_arrays([pa.nulls(2, kind)], ["value"]))


def is_warm() -> bool:
    """Whether all kernels are compiled, from the sources as they are, for this machine."""
    return kernel_place().is_warm()


def ensure_warm(notify: Callable[[str], None]) -> None:
    """Compile what is not compiled yet, or was compiled from sources that have changed since; says so before."""
    place = kernel_place()
    if place.is_warm():
        return
    notify(Notice("compiling kernels", "compiling kernels, once; this takes about a minute"))
    place.clear()
    warm_walk()
    warm(ARROW)
    warm(TEXT)
    warm_json()
    warm_changes()
    sha256_hex(pa.array([None, ""]))
    place.mark_warm()


def main() -> None:
    begun = time.monotonic()
    ensure_warm(lambda message: None)
    sys.stdout.write(f"kernels ready after {time.monotonic() - begun:.1f} s\n")


if __name__ == "__main__":
    main()
