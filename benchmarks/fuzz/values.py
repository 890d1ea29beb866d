"""Random values as Postgres would send them, for every type that has a decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from walrelay.model.schema import PgType, TypeField, TypeKind

Make = Callable[[Random], bytes]
LETTERS = "abcdefghijklmnopqrstuvwxyz ,'\"\\{}()0123456789ABCéß€語🐘"
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e-310, 1e300, 1 / 3, 1e15, 123456789.125, float("inf"), float("-inf"))
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A type and a source of good values of it."""

    type: PgType
    make: Make
    as_text: bool = False


def base(name: str, make: Make, modifier: int = -1, extension: str | None = None) -> Kind:
    schema = "pg_catalog" if extension is None else "public"
    return Kind(PgType(0, name, schema=schema, extension=extension, modifier=modifier), make)


def packed(layout: str, *ranges: tuple[int, int]) -> Make:
    """Integers within the ranges, laid out by `struct`."""
    return lambda rng: struct.pack(layout, *(rng.randint(low, high) for low, high in ranges))


def raw(size: int) -> Make:
    return lambda rng: rng.randbytes(size)


def text(rng: Random) -> bytes:
    # Now and then one that is larger than a small buffer.
    size = rng.randint(1000, 5000) if rng.random() < 0.01 else rng.randint(0, 24)
    return "".join(rng.choices(LETTERS, k=size)).encode()


def floats(count: int) -> Make:
    # No NaN among plain floats: rows are compared, and NaN is never equal. As text it is.
    return lambda rng: struct.pack(f">{count}d", *rng.choices(FLOATS, k=count))


def coordinates(count: int) -> Make:
    return lambda rng: struct.pack(f">{count}d", *rng.choices((*FLOATS, float("nan")), k=count))


def counted(layout: str, most: int, size: int, item: Callable[[int], Make]) -> Make:
    """A count and so many items of `size` parts each."""

    def make(rng: Random) -> bytes:
        count = rng.randint(1, most)
        return struct.pack(layout, count) + item(count * size)(rng)

    return make


def numeric_bytes(unscaled: int, scale: int) -> bytes:
    """unscaled / 10^scale as numeric_send writes it: base-10000 digits without zeros at either end."""
    padding = -scale % 4
    rest, digits = abs(unscaled) * 10**padding, list[int]()
    while rest:
        rest, digit = divmod(rest, 10_000)
        digits.insert(0, digit)
    weight = len(digits) - (scale + padding) // 4 - 1 if digits else 0
    while digits and digits[-1] == 0:
        digits.pop()
    sign = 0x4000 if unscaled < 0 else 0
    return struct.pack(f">HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


def numeric(precision: int, scale: int | None, specials: tuple[int, ...] = (0xC000,)) -> Make:
    """Of a declared scale, or of any; sometimes one of the special signs."""

    def make(rng: Random) -> bytes:
        if rng.random() < 0.05:
            return struct.pack(">HhHH", 0, 0, rng.choice(specials), 0)
        limit = 10 ** rng.randint(0, precision)
        return numeric_bytes(rng.randint(-limit + 1, limit - 1), rng.randint(0, 30) if scale is None else scale)

    return make


def days(rng: Random) -> bytes:
    usual = rng.randint(-10_000, 20_000)
    return struct.pack(">i", rng.choice((usual, usual, usual, MAX_INT32, -MAX_INT32 - 1, -2_451_545, 2_145_031_948)))


def microseconds(rng: Random) -> bytes:
    usual = rng.randint(-(10**15), 10**15)
    odd = (MAX_INT64, -MAX_INT64 - 1, -211_813_488_000_000_000, 9_223_371_331_199_999_999)
    return struct.pack(">q", rng.choice((usual, usual, usual, *odd)))


def interval(rng: Random) -> bytes:
    if rng.random() < 0.05:
        return struct.pack(">qii", MAX_INT64, MAX_INT32, MAX_INT32)
    return struct.pack(">qii", rng.randint(-(10**12), 10**12), rng.randint(-400, 400), rng.randint(-1200, 1200))


def inet(rng: Random) -> bytes:
    family, size = rng.choice(((2, 4), (3, 16)))
    return bytes((family, rng.randint(0, size * 8), 0, size)) + rng.randbytes(size)


def cidr(rng: Random) -> bytes:
    family, size = rng.choice(((2, 4), (3, 16)))
    return bytes((family, size * 8, 1, size)) + rng.randbytes(size)


def bit_string(rng: Random) -> bytes:
    count = rng.randint(0, 40)
    bits = rng.getrandbits(count) << (-count % 8) if count else 0
    return struct.pack(">i", count) + bits.to_bytes((count + 7) // 8, "big")


def path(rng: Random) -> bytes:
    return bytes((rng.randint(0, 1),)) + counted(">i", 5, 2, coordinates)(rng)


def lexeme(rng: Random) -> bytes:
    return text(rng)[:40].decode(errors="ignore").encode() or b"x"


def tsvector(rng: Random) -> bytes:
    made = b""
    count = rng.randint(0, 4)
    for _ in range(count):
        places = [rng.randint(1, 16_383) | rng.randint(0, 3) << 14 for _ in range(rng.randint(0, 3))]
        made += lexeme(rng) + b"\0" + struct.pack(f">{len(places) + 1}H", len(places), *places)
    return struct.pack(">i", count) + made


def tsquery(rng: Random) -> bytes:
    """Prefix order; the right operand before the left one."""

    def node(depth: int) -> list[bytes]:
        pick = rng.random() if depth else 1.0
        if pick < 0.2:
            return [b"\2\1", *node(depth - 1)]
        if pick < 0.5:
            return [rng.choice((b"\2\2", b"\2\3")), *node(depth - 1), *node(depth - 1)]
        if pick < 0.6:
            return [b"\2\4" + struct.pack(">H", rng.randint(0, 16_384)), *node(depth - 1), *node(depth - 1)]
        return [bytes((1, rng.randint(0, 15), rng.randint(0, 1))) + lexeme(rng) + b"\0"]

    nodes = node(rng.randint(0, 4)) if rng.random() < 0.9 else []
    return struct.pack(">i", len(nodes)) + b"".join(nodes)


def hstore(rng: Random) -> bytes:
    made, count = b"", rng.randint(0, 3)
    for _ in range(count):
        made += sized(text(rng)) + sized(None if rng.random() < 0.2 else text(rng))
    return struct.pack(">i", count) + made


def sized(value: bytes | None) -> bytes:
    """A value behind its length, as fields and elements are sent."""
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def array_of(element: Kind, name: str, dimensions: int = 1, kind: TypeKind = "array") -> Kind:
    """Arrays, sometimes of another shape than declared or with another lower bound."""

    def make(rng: Random) -> bytes:
        shape = [rng.randint(1, 3) for _ in range(rng.choice((dimensions, dimensions, dimensions, 0, 1, 2)))]
        lower = 0 if kind == "vector_array" else rng.choice((1, 1, 1, 0, -5))
        total = 1 if shape else 0
        for length in shape:
            total *= length
        values = [None if rng.random() < 0.1 else element.make(rng) for _ in range(total)]
        header = struct.pack(">iii", len(shape), int(None in values), 0)
        bounds = b"".join(struct.pack(">ii", length, lower) for length in shape)
        return header + bounds + b"".join(map(sized, values))

    return Kind(PgType(0, name, kind=kind, element=element.type, dimensions=dimensions), make)


def composite_of(name: str, *parts: Kind) -> Kind:
    def make(rng: Random) -> bytes:
        values = [None if rng.random() < 0.1 else part.make(rng) for part in parts]
        return struct.pack(">i", len(parts)) + b"".join(struct.pack(">i", 0) + sized(value) for value in values)

    fields = tuple(TypeField(f"part {number}", part.type) for number, part in enumerate(parts))
    return Kind(PgType(0, name, kind="composite", schema="public", fields=fields), make)


def range_of(bound: Kind, name: str) -> Kind:
    def make(rng: Random) -> bytes:
        flags = rng.choice((0x01, 0x02, 0x02, 0x04, 0x06, 0x08, 0x10, 0x18))
        if flags & 0x01:
            return b"\1"
        bounds = b"".join(sized(bound.make(rng)) for infinite in (0x08, 0x10) if not flags & infinite)
        return bytes((flags,)) + bounds

    return Kind(PgType(0, name, kind="range", element=bound.type), make)


def multirange_of(inner: Kind, name: str) -> Kind:
    def make(rng: Random) -> bytes:
        count = rng.randint(0, 3)
        return struct.pack(">i", count) + b"".join(sized(inner.make(rng)) for _ in range(count))

    return Kind(PgType(0, name, kind="multirange", element=inner.type), make)


def vector(rng: Random) -> bytes:
    count = rng.randint(0, 6)
    return struct.pack(f">HH{count}f", count, 0, *(rng.uniform(-9, 9) for _ in range(count)))


def halfvec(rng: Random) -> bytes:
    count = rng.randint(0, 6)
    return struct.pack(f">HH{count}e", count, 0, *(rng.uniform(-9, 9) for _ in range(count)))


def versioned(rng: Random) -> bytes:
    return b"\1" + text(rng)
