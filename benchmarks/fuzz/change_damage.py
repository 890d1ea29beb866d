"""Ways to damage a replication stream. Most cannot be noticed for certain: more bytes could always follow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.fuzz.change_stream import ChangeStream
from benchmarks.fuzz.damage import WORDS


@dataclass(frozen=True, slots=True)
class DamagedChanges:
    """What became of the bytes."""

    data: bytes
    first: int
    """The first byte that may differ: transactions that end before it must come out unharmed."""
    harmless: bool = False
    """All before `first` is good and nothing follows it: no reader may refuse it."""
    certain: bool = False
    """It cannot be taken for a whole stream: it is refused, or more bytes are waited for."""


ChangeDamage = Callable[[Random, ChangeStream], DamagedChanges]


def nothing(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """Not damaged at all: everything must come, whatever the sizes of buffers and reads."""
    return DamagedChanges(bytes(stream.data), len(stream.data), harmless=True)


def truncated(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """The connection is lost: what is whole must come, and nothing is wrong."""
    at = rng.randrange(len(stream.data))
    return DamagedChanges(bytes(stream.data[:at]), at, harmless=True)


def flipped(rng: Random, stream: ChangeStream) -> DamagedChanges:
    data = bytearray(stream.data)
    places = [rng.randrange(len(data)) for _ in range(rng.randint(1, 4))]
    for at in places:
        data[at] ^= 1 << rng.randrange(8)
    return DamagedChanges(bytes(data), min(places))


def wrong_frame(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """The length of a frame, which the message in it contradicts."""
    at = rng.choice(stream.frames) + 1
    before = struct.unpack_from(">i", stream.data, at)[0]
    near = before + rng.choice((-5, -4, -2, -1, 1, 2, 4, 5))
    word = rng.choice([word for word in (*WORDS, near, near, near) if word != before])
    return _with_word(stream, at, word, certain=True)


def wrong_length(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """The length of a field."""
    if not stream.lengths:
        return flipped(rng, stream)
    at = rng.choice(stream.lengths)
    before = struct.unpack_from(">i", stream.data, at)[0]
    near = max(before + rng.choice((-4, -2, -1, 1, 2, 4)), -(2**31))
    return _with_word(stream, at, rng.choice((*WORDS, near, near, near)))


def wrong_count(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """The number of fields of a row, which its table contradicts."""
    if not stream.counts:
        return wrong_frame(rng, stream)
    at = rng.choice(stream.counts)
    before = struct.unpack_from(">H", stream.data, at)[0]
    wrong = rng.choice([n for n in (0, 1, before - 1, before + 1, 255, 1600, 32_767, 32_768, 65_535) if n != before])
    data = bytearray(stream.data)
    struct.pack_into(">H", data, at, wrong % 65_536)
    return DamagedChanges(bytes(data), at)


def emptied_row(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """A row of which no field is left, in a message that ends where its frame ends."""
    spans = _frame_spans(stream)
    rows = [(a, b) for a, b in spans if stream.data[a + 30 : a + 31] == b"I" and b - a > 38]
    if not rows:
        return wrong_count(rng, stream)
    begin, end = rng.choice(rows)
    head = bytes(stream.data[begin : begin + 36])  # up to the mark of the new row
    if stream.data[begin + 35 : begin + 36] != b"N":
        return wrong_count(rng, stream)  # streamed: the transaction's number stands in between
    made = head[:1] + struct.pack(">i", 37) + head[5:] + b"\0\0"
    return DamagedChanges(bytes(stream.data[:begin] + made + stream.data[end:]), begin, certain=True)


def wrong_word(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """Four bytes at the front of a message, where numbers of relations, transactions and positions stand, or any."""
    near = rng.choice(stream.frames) + 30 + rng.randint(0, 25)
    at = near if rng.random() < 0.7 else rng.randrange(len(stream.data))
    return _with_word(stream, max(0, min(at, len(stream.data) - 4)), rng.choice(WORDS))


def wrong_kind(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """Another message where this one stands."""
    at = rng.choice(stream.frames)
    data = bytearray(stream.data)
    place = min(at + rng.choice((0, 5, 30, 30, 30)), len(data) - 1)
    data[place] = rng.choice(b"BCIUDTRYOMSEcAdkwnubtKN\0\xff")
    return DamagedChanges(bytes(data), place)


def duplicated(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """A frame comes twice."""
    begin, end = rng.choice(_frame_spans(stream))
    return DamagedChanges(bytes(stream.data[:end] + stream.data[begin:end] + stream.data[end:]), end)


def lost_frame(rng: Random, stream: ChangeStream) -> DamagedChanges:
    begin, end = rng.choice(_frame_spans(stream))
    return DamagedChanges(bytes(stream.data[:begin] + stream.data[end:]), begin)


def swapped(rng: Random, stream: ChangeStream) -> DamagedChanges:
    """Two frames stand in each other's place."""
    spans = _frame_spans(stream)
    (a, b), (c, d) = sorted((rng.choice(spans), rng.choice(spans)))
    if a == c:
        return duplicated(rng, stream)
    data = stream.data
    return DamagedChanges(bytes(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]), a)


def overwritten(rng: Random, stream: ChangeStream) -> DamagedChanges:
    data = bytearray(stream.data)
    at = rng.randrange(len(data))
    some = rng.randbytes(rng.randint(1, 64))[: len(data) - at]
    data[at : at + len(some)] = some
    return DamagedChanges(bytes(data), at)


def deleted(rng: Random, stream: ChangeStream) -> DamagedChanges:
    at = rng.randrange(len(stream.data))
    return DamagedChanges(bytes(stream.data[:at] + stream.data[at + rng.randint(1, 40) :]), at)


def inserted(rng: Random, stream: ChangeStream) -> DamagedChanges:
    at = rng.randrange(len(stream.data))
    return DamagedChanges(bytes(stream.data[:at] + rng.randbytes(rng.randint(1, 40)) + stream.data[at:]), at)


def garbage(rng: Random, stream: ChangeStream) -> DamagedChanges:
    return DamagedChanges(rng.randbytes(rng.choice((0, 1, 5, 31, rng.randint(0, 2000)))), 0)


def _frame_spans(stream: ChangeStream) -> list[tuple[int, int]]:
    """(begin, end) of every frame of data."""
    return [(at, at + 1 + struct.unpack_from(">i", stream.data, at + 1)[0]) for at in stream.frames]


def _with_word(stream: ChangeStream, at: int, word: int, *, certain: bool = False) -> DamagedChanges:
    data = bytearray(stream.data)
    struct.pack_into(">i", data, at, word)
    return DamagedChanges(bytes(data), at, certain=certain)


CHANGE_DAMAGES: tuple[ChangeDamage, ...] = (
    nothing, nothing, nothing, nothing, truncated, truncated, flipped, flipped, wrong_frame, wrong_frame,
    wrong_length, wrong_length, wrong_count, emptied_row, wrong_word, wrong_word, wrong_kind, wrong_kind,
    duplicated, lost_frame, swapped, overwritten, deleted, inserted, garbage,
)  # fmt: skip
"""The more often named, the more often done."""
