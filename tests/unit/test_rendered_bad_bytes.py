"""Whatever the bytes are, they are rendered or refused with `BadBytesError`, and no others are looked at."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walrelay.decode import bitstring, clock, geometric, hstore, identifiers, network, tsearch
from walrelay.decode.base import Fields, Tally
from walrelay.decode.rendered import RenderedDecoder
from walrelay.errors import BadBytesError

MAX_INT32 = b"\x7f\xff\xff\xff"
MINUS_ONE = b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class Case:
    decoder: Callable[[], RenderedDecoder]
    good: dict[bytes, str]
    bad: tuple[bytes, ...] = ()


def _text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _floats(*values: float) -> bytes:
    return struct.pack(f">{len(values)}d", *values)


HSTORE = struct.pack(">i", 2) + _text(b'a"') + _text(b"\\") + _text("é".encode()) + MINUS_ONE
TSVECTOR = struct.pack(">i", 2) + b"a'\0" + struct.pack(">3H", 2, 1 | 3 << 14, 16383) + b"b\0\0\0"
# Prefix order, the right operand before the left one: a & b:*A <-> (c <2> !d)
TSQUERY = (
    struct.pack(">i", 8)
    + b"\2\2" + b"\2\4\0\1" + b"\2\4\0\2" + b"\2\1" + b"\1\0\0d\0" + b"\1\0\0c\0"
    + b"\1\x08\1b\0" + b"\1\0\0a\0"
)  # fmt: skip

CASES = {
    "inet": Case(
        network.inet,
        {b"\2\x18\0\4\x0a\1\2\3": "10.1.2.3/24", b"\3\x80\0\x10" + bytes(15) + b"\1": "::1"},
        (
            b"\2\x21\0\4\x0a\1\2\3",
            b"\3\x20\0\4\x0a\1\2\3",
            b"\2\x20\0\x10" + bytes(16),
            b"\1\x20\0\4\x0a\1\2\3",
        ),
    ),
    "cidr": Case(network.cidr, {b"\2\x20\1\4\x0a\1\2\3": "10.1.2.3/32", b"\3\0\1\x10" + bytes(16): "::/0"}),
    "macaddr": Case(network.macaddr, {b"\x08\0+\1\2\xff": "08:00:2b:01:02:ff"}, (bytes(8),)),
    "macaddr8": Case(network.macaddr8, {b"\x08\0+\1\2\3\4\xff": "08:00:2b:01:02:03:04:ff"}, (bytes(6),)),
    "bit": Case(
        bitstring.bit,
        {b"\0\0\0\x0a\xaa\x80": "1010101010", bytes(4): ""},
        (MINUS_ONE, MAX_INT32, b"\0\0\0\x08", b"\0\0\0\x08\0\0", b"\0\0\0\x09\0"),
    ),
    "timetz": Case(
        clock.timetz,
        {struct.pack(">qi", 49_500_500_000, -19_800): "13:45:00.5+05:30"},
        (
            struct.pack(">qi", 0, 57_600),
            struct.pack(">qi", 0, -57_600),
            struct.pack(">qi", 86_400_000_001, 0),
        ),
    ),
    "time": Case(
        clock.time_text,
        {struct.pack(">q", 86_400_000_000): "24:00:00"},
        (struct.pack(">q", 86_400_000_001), struct.pack(">q", -1)),
    ),
    "pg_lsn": Case(identifiers.pg_lsn, {struct.pack(">Q", 0x16_B374D848): "16/B374D848"}),
    "uuid": Case(identifiers.uuid_text, {bytes(range(16)): "00010203-0405-0607-0809-0a0b0c0d0e0f"}),
    "char": Case(identifiers.char, {b"a": "a", b"\0": "", b"\xff": "\\377"}, (b"ab",)),
    "tid": Case(identifiers.tid, {b"\xff\xff\xff\xff\0\1": "(4294967295,1)"}),
    "xid8": Case(identifiers.xid8, {b"\xff" * 8: "18446744073709551615"}),
    "point": Case(geometric.point, {_floats(1, -0.0): "(1,-0)"}),
    "lseg": Case(geometric.lseg, {_floats(1, 2, 3, 1e23): "[(1,2),(3,9.999999999999999e+22)]"}),
    "box": Case(geometric.box, {_floats(3, 4, 1e-5, 2): "(3,4),(1e-05,2)"}),
    "line": Case(geometric.line, {_floats(1, 2, 1e15): "{1,2,1e+15}"}),
    "circle": Case(geometric.circle, {_floats(1, 2, float("inf")): "<(1,2),Infinity>"}),
    "path": Case(
        geometric.path,
        {
            b"\1\0\0\0\2" + _floats(1, 2, 3, 4): "((1,2),(3,4))",
            b"\0\0\0\0\1" + _floats(1, float("nan")): "[(1,NaN)]",
        },
        (b"\2\0\0\0\1" + bytes(16), b"\1" + bytes(4), b"\1" + MAX_INT32 + bytes(16), b"\1" + MINUS_ONE),
    ),
    "polygon": Case(
        geometric.polygon,
        {b"\0\0\0\1" + _floats(0.1, 2): "((0.1,2))"},
        # 2^28 points of 16 bytes are 2^32 bytes: nothing, when counted in 32 bits.
        (bytes(4), MAX_INT32, MINUS_ONE, b"\x10\0\0\0"),
    ),
    "tsvector": Case(
        tsearch.tsvector,
        {TSVECTOR: "'a''':1A,16383 'b'", bytes(4): ""},
        (MINUS_ONE, MAX_INT32 + TSVECTOR[4:], b"\0\0\0\1\xff\0\0\0", b"\0\0\0\1abc", b"\0\0\0\1a\0\0\1"),
    ),
    "tsquery": Case(
        tsearch.tsquery,
        {TSQUERY: "'a' & 'b':*A <-> ( 'c' <2> !'d' )", bytes(4): ""},
        (
            MINUS_ONE,
            MAX_INT32 + TSQUERY[4:],
            b"\0\0\0\1\2\1",  # ! without an operand
            b"\0\0\0\2\2\2\1\0\0a\0",  # & with one operand
            b"\0\0\0\2\1\0\0a\0\1\0\0b\0",  # two trees
            b"\0\0\0\1\1\x10\0a\0",  # a fifth weight
            b"\0\0\0\1\3\0\0a\0",  # a stop word, which is never sent
            b"\0\0\0\1\1\0\0a",
        ),
    ),
    "hstore": Case(
        hstore.hstore,
        {HSTORE: '"a\\""=>"\\\\", "é"=>NULL', bytes(4): ""},
        (
            MINUS_ONE,
            MAX_INT32 + HSTORE[4:],
            struct.pack(">i", 1) + MINUS_ONE + _text(b"a"),
            struct.pack(">i", 1) + _text(b"a") + b"\xff\xff\xff\xfe",
            struct.pack(">i", 1) + _text(b"a") + MAX_INT32,
            struct.pack(">i", 1) + _text(b"\xff") + MINUS_ONE,
        ),
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def _fields(values: list[bytes | None], filler: bytes) -> Fields:
    """The values with 40 bytes that belong to nobody before, between and after them."""
    buf = bytearray(filler * 40)
    starts = []
    for value in values:
        starts.append(len(buf))
        buf += (value or b"") + filler * 40
    lengths = [-1 if value is None else len(value) for value in values]
    return Fields(np.frombuffer(buf, np.uint8), np.array(starts, np.int32), np.array(lengths, np.int32))


def _decode(case: Case, values: list[bytes | None], filler: bytes = b"\0") -> list[str | None] | str:
    """The texts, or the reason why there are none."""
    try:
        array = case.decoder().decode(_fields(values, filler), Tally())
    except BadBytesError as error:
        return f"{error.reason} in row {error.context['row']}"
    array.validate(full=True)
    texts: list[str | None] = array.to_pylist()
    return texts


@every_case
def test_good_bytes_are_rendered(case: Case) -> None:
    values: list[bytes | None] = [None, *case.good, None, *case.good]
    assert _decode(case, values) == [None, *case.good.values(), None, *case.good.values()]
    assert _decode(case, []) == []
    assert _decode(case, [None]) == [None]


@every_case
def test_the_row_of_bad_bytes_is_named(case: Case) -> None:
    for good in case.good:
        cut = tuple(good[:length] for length in range(len(good)))
        for bad in (*case.bad, *cut, good + b"\0", good * 2):
            reason = _decode(case, [good, None, bad, good])
            assert isinstance(reason, str), bad
            assert reason.endswith("in row 2"), bad


@every_case
def test_any_bytes_decode_or_are_refused_and_no_others_are_read(case: Case) -> None:
    good = st.sampled_from(sorted(case.good))

    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        value = bytearray(draw(good))
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(value)))
            value[at : at + draw(st.integers(0, 4))] = draw(
                st.one_of(st.binary(max_size=4), st.sampled_from([MAX_INT32, MINUS_ONE, bytes(4)]))
            )
        return bytes(value)

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.one_of(st.none(), good, damaged(), st.binary(max_size=64)), max_size=3))
    def check(values: list[bytes | None]) -> None:
        outcomes = [_decode(case, values, filler) for filler in (b"\0", b"\xff", b"\1")]
        assert outcomes[0] == outcomes[1] == outcomes[2]

    check()


@pytest.mark.parametrize(
    ("decoder", "value"),
    [
        (tsearch.tsquery, struct.pack(">i", 500_001) + b"\2\1" * 500_000 + b"\1\0\0a\0"),
        (tsearch.tsquery, struct.pack(">i", 200_001) + b"\2\4\x80\0\1\x0f\1\0" * 100_000 + b"\1\x0f\1\0"),
        (tsearch.tsquery, struct.pack(">i", 200_001) + b"\2\2\2\3" * 50_000 + b"\1\x0f\1\0" * 100_001),
        (tsearch.tsvector, struct.pack(">i", 1) + b"'\0\xff\xff" + b"\xff\xfe" * 65_535),
        (tsearch.tsvector, struct.pack(">i", 100_000) + b"\0\0\0" * 100_000),
        (hstore.hstore, struct.pack(">i", 100_000) + (bytes(4) + MINUS_ONE) * 100_000),
        (geometric.polygon, struct.pack(">i", 10_000) + _floats(-1.2345678901234567e-300) * 20_000),
    ],
)
def test_the_longest_text_for_its_bytes_finds_room(decoder: Callable[[], RenderedDecoder], value: bytes) -> None:
    array = decoder().decode(Fields.of([value, value]), Tally())
    array.validate(full=True)
    written = sum(len(text) for text in array.to_pylist())
    assert written <= 2 * decoder().per_byte * len(value)
