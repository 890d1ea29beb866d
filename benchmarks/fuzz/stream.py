"""Good COPY streams of random tables, with a map of where their words stand."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.values import Kind
from walrelay.model.names import TableName
from walrelay.model.schema import Column, TableSchema
from walrelay.wire.copy_binary import SIGNATURE

Road = Literal["plain", "framed", "socket"]
"""`plain` as libpq hands it out, `framed` as it is on the wire, `socket` a whole conversation through `SocketCopy`."""
ROADS: tuple[Road, ...] = ("plain", "framed", "socket")


@dataclass
class Stream:
    """The bytes, and the places in them that are worth damaging."""

    schema: TableSchema
    road: Road
    data: bytearray = field(default_factory=bytearray)
    header: int = 0
    frames: list[int] = field(default_factory=list)
    """Of CopyData messages: where the 32-bit length stands."""
    counts: list[int] = field(default_factory=list)
    """Of rows: where the 16-bit count stands; the trailer's is not among them."""
    lengths: list[int] = field(default_factory=list)
    """Of fields: where the 32-bit length stands."""
    row_ends: list[int] = field(default_factory=list)
    end: int = 0
    """Behind the trailer; on the road `socket` the server's last words follow."""

    @property
    def rows(self) -> int:
        return len(self.row_ends)


def random_stream(rng: Random) -> Stream:
    """A table of up to 12 columns and 40 rows; now and then one without columns, or without rows."""
    kinds = rng.choices(KINDS, k=rng.choice((0, 1, 1, *range(2, 13))))
    rows = [[None if rng.random() < 0.1 else kind.make(rng) for kind in kinds] for _ in range(rng.randint(0, 40))]
    extension = rng.randbytes(rng.choice((0, 0, 0, 7)))
    return build_stream(kinds, rows, rng.choice(ROADS), extension)


def build_stream(kinds: list[Kind], rows: list[list[bytes | None]], road: Road, extension: bytes = b"") -> Stream:
    """The stream of these rows, as Postgres sends it."""
    columns = tuple(Column(f"column {n}", kind.type, as_text=kind.as_text) for n, kind in enumerate(kinds))
    stream = Stream(TableSchema(1, TableName("public", "fuzz"), columns), road)
    data = stream.data
    if road == "socket":
        data += b"H" + struct.pack(f">ibh{len(kinds)}h", 7 + 2 * len(kinds), 1, len(kinds), *[1] * len(kinds))
    header = SIGNATURE + struct.pack(">ii", 0, len(extension)) + extension
    for row in rows:
        begun = _begin_message(stream, header)
        stream.counts.append(len(data))
        data += struct.pack(">h", len(kinds))
        for value in row:
            stream.lengths.append(len(data))
            data += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
        _end_message(stream, begun)
        stream.row_ends.append(len(data))
        header = b""
    begun = _begin_message(stream, header)
    data += b"\xff\xff"
    _end_message(stream, begun)
    stream.end = len(data)
    if road == "socket":
        data += b"c\0\0\0\4" + b"C\0\0\0\x0bCOPY 1\0" + b"Z\0\0\0\5T"
    return stream


def _begin_message(stream: Stream, header: bytes) -> int:
    begun = len(stream.data)
    if stream.road != "plain":
        stream.data += b"d\0\0\0\0"
        stream.frames.append(begun + 1)
    if header:
        stream.header = len(stream.data)
        stream.data += header
    return begun


def _end_message(stream: Stream, begun: int) -> None:
    if stream.road != "plain":
        struct.pack_into(">i", stream.data, begun + 1, len(stream.data) - begun - 1)
