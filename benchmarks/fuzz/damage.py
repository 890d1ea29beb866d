"""Ways to damage a stream; some of them can always be noticed, and then must be."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.fuzz.stream import Stream

WORDS = (0, 1, -1, -2, 4, 255, 256, 65_536, 2**28, 2**29, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1, -(2**31))
"""Lengths and counts that have broken many a parser."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """What became of the bytes."""

    data: bytes
    first: int
    """The first byte that may differ: rows that end before it must come out unharmed."""
    certain: bool = False
    """No reader can take this for a whole stream: it must be refused."""


Damage = Callable[[Random, Stream], Damaged]


def nothing(rng: Random, stream: Stream) -> Damaged:
    """Not damaged at all: all rows must come, whatever the sizes of buffer and reads."""
    return Damaged(bytes(stream.data), len(stream.data))


def truncated(rng: Random, stream: Stream) -> Damaged:
    at = rng.randrange(stream.end)
    return Damaged(bytes(stream.data[:at]), at, certain=True)


def flipped(rng: Random, stream: Stream) -> Damaged:
    data = bytearray(stream.data)
    places = [rng.randrange(len(data)) for _ in range(rng.randint(1, 8))]
    for at in places:
        data[at] ^= 1 << rng.randrange(8)
    return Damaged(bytes(data), min(places))


def wrong_length(rng: Random, stream: Stream) -> Damaged:
    """A field's length."""
    if not stream.lengths:
        return flipped(rng, stream)
    at = rng.choice(stream.lengths)
    before = struct.unpack_from(">i", stream.data, at)[0]
    near = max(before + rng.choice((-4, -2, -1, 1, 2, 4)), -(2**31))
    return _with_word(stream, at, rng.choice((*WORDS, near, near, near)))


def wrong_value(rng: Random, stream: Stream) -> Damaged:
    """A value whose length and message are right, so that only its decoder can notice."""
    if not stream.lengths:
        return flipped(rng, stream)
    at = rng.choice(stream.lengths)
    size = struct.unpack_from(">i", stream.data, at)[0]
    value = _mangled(rng, bytes(stream.data[at + 4 : at + 4 + max(size, 0)]))
    data = stream.data[:at] + struct.pack(">i", len(value)) + value + stream.data[at + 4 + max(size, 0) :]
    if stream.frames:
        frame = stream.frames[bisect_right(stream.frames, at) - 1]
        before = struct.unpack_from(">i", stream.data, frame)[0]
        struct.pack_into(">i", data, frame, before + len(value) - max(size, 0))
        at = frame
    return Damaged(bytes(data), at)


def _mangled(rng: Random, value: bytes) -> bytes:
    """Cut, longer, or with other words where counts and lengths of parts often stand."""
    at = 2 * rng.randrange(len(value) // 2 + 1) if rng.random() < 0.5 else rng.choice((0, 0, 1, 4))
    word = struct.pack(">i", rng.choice(WORDS))[rng.choice((0, 2)) :]
    match rng.randrange(5):
        case 0:
            return value[: rng.randint(0, len(value))]
        case 1:
            return value + rng.choice((bytes(1), bytes(2), rng.randbytes(rng.randint(1, 20)), value))
        case 2:
            return rng.randbytes(rng.choice((0, 1, 2, 4, 8, 12, 16, rng.randint(0, 60))))
        case 3:
            small = rng.randint(0, 5).to_bytes(rng.choice((1, 2, 4)), "big")
            return value[:at] + small + value[at + len(small) :]
        case _:
            return value[:at] + word + value[at + len(word) :]


def wrong_word(rng: Random, stream: Stream) -> Damaged:
    """Any four bytes, within a value most often: counts and lengths of its parts."""
    if len(stream.data) < 4:
        return flipped(rng, stream)
    near = rng.choice(stream.lengths) + 4 * rng.randint(1, 6) if stream.lengths else 0
    at = min(near, len(stream.data) - 4) if near and rng.random() < 0.7 else rng.randrange(len(stream.data) - 3)
    return _with_word(stream, at, rng.choice(WORDS))


def wrong_count(rng: Random, stream: Stream) -> Damaged:
    """The number of fields of a row, which the table's width contradicts."""
    if not stream.counts:
        return truncated(rng, stream)
    at, width = rng.choice(stream.counts), len(stream.schema.columns)
    wrong = rng.choice([n for n in (-1, -2, 0, 1, width - 1, width + 1, 255, 32_767, -32_768) if n != width])
    data = bytearray(stream.data)
    struct.pack_into(">h", data, at, wrong)
    return Damaged(bytes(data), at, certain=True)


def wrong_frame(rng: Random, stream: Stream) -> Damaged:
    """The length of a message, which the row in it contradicts."""
    if not stream.frames:
        return wrong_length(rng, stream)
    at = rng.choice(stream.frames)
    before = struct.unpack_from(">i", stream.data, at)[0]
    near = before + rng.choice((-5, -4, -2, -1, 1, 2, 4, 5))
    wrong = rng.choice([word for word in (*WORDS, near, near) if word != before])
    return Damaged(_with_word(stream, at, wrong).data, at, certain=True)


def wrong_header(rng: Random, stream: Stream) -> Damaged:
    """Signature, flags that must be understood, or the length of the extension."""
    data, at = bytearray(stream.data), stream.header + rng.randrange(13)
    data[at] ^= 1 << rng.randrange(8)
    return Damaged(bytes(data), at, certain=True)


def overwritten(rng: Random, stream: Stream) -> Damaged:
    data = bytearray(stream.data)
    at = rng.randrange(len(data))
    some = rng.randbytes(rng.randint(1, 64))[: len(data) - at]
    data[at : at + len(some)] = some
    return Damaged(bytes(data), at)


def inserted(rng: Random, stream: Stream) -> Damaged:
    at = rng.randint(0, stream.end)
    some = rng.choice((rng.randbytes(rng.randint(1, 16)), bytes(rng.randint(1, 8)), b"\xff" * rng.randint(1, 8)))
    return Damaged(bytes(stream.data[:at]) + some + bytes(stream.data[at:]), at)


def deleted(rng: Random, stream: Stream) -> Damaged:
    at = rng.randrange(stream.end)
    return Damaged(bytes(stream.data[:at] + stream.data[at + rng.randint(1, 16) :]), at)


def garbage(rng: Random, stream: Stream) -> Damaged:
    """Nothing of the stream is left."""
    size = rng.choice((0, 1, 5, 19, rng.randint(0, 2000)))
    return Damaged(rng.randbytes(size), 0, certain=True)


def _with_word(stream: Stream, at: int, word: int) -> Damaged:
    data = bytearray(stream.data)
    struct.pack_into(">i", data, at, word)
    return Damaged(bytes(data), at)


DAMAGES: tuple[Damage, ...] = (
    nothing, truncated, flipped, flipped, wrong_length, wrong_length,
    wrong_value, wrong_value, wrong_value, wrong_value, wrong_word, wrong_word,
    wrong_count, wrong_frame, wrong_header, overwritten, inserted, deleted, garbage,
)  # fmt: skip
"""The more often named, the more often done."""
