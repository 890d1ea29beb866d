"""Types that leave as text read exactly as the text that the server itself prints."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import psycopg
import pytest
from psycopg import sql

from walrelay.decode import bitstring, clock, geometric, hstore, identifiers, network, tsearch
from walrelay.decode.base import Fields, Tally
from walrelay.decode.float_text import float_text
from walrelay.decode.rendered import RenderedDecoder
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

RANDOM_VALUES = 2_000


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    with EmbeddedPostgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION hstore")
        yield connection


@dataclass(frozen=True)
class Case:
    """A type, values worth a look, and a maker of more of them; all in the type's input syntax."""

    type: str
    decoder: Callable[[], RenderedDecoder]
    literals: tuple[str, ...]
    more: Callable[[random.Random], str]


def _float(chance: random.Random) -> str:
    kind = chance.randrange(4)
    if kind == 0:
        return repr(struct.unpack("<d", chance.randbytes(8))[0])
    if kind == 1:
        return f"{chance.randrange(-999, 1000)}e{chance.randrange(-30, 31)}"
    return repr(round(chance.gauss(0, 100), chance.randrange(6)))


def _points(chance: random.Random, count: int) -> str:
    return ",".join(f"({_float(chance)},{_float(chance)})" for _ in range(count))


def _many_points(chance: random.Random) -> str:
    opening, closing = chance.choice(["()", "[]"])
    return opening + _points(chance, chance.randrange(1, 9)) + closing


def _line(chance: random.Random) -> str:
    return f"{{{chance.gauss(0, 9)!r},{chance.randrange(1, 99)},{_float(chance)}}}"


def _circle(chance: random.Random) -> str:
    return f"<{_points(chance, 1)},{abs(chance.gauss(0, 9))!r}>"


def _ipv4(chance: random.Random, host: bool = True) -> str:
    bits = chance.randrange(33)
    address = chance.getrandbits(32)
    if not host:
        address &= -1 << (32 - bits)
    return ".".join(str(byte) for byte in address.to_bytes(4, "big")) + f"/{bits}"


def _ipv6(chance: random.Random, host: bool = True) -> str:
    bits = chance.choice([chance.randrange(129), 128])
    groups = [chance.choice([0, 0, 0, 1, 0xFFFF, chance.getrandbits(16)]) for _ in range(8)]
    address = int.from_bytes(struct.pack(">8H", *groups), "big")
    if not host:
        address &= -1 << (128 - bits)
    return ":".join(f"{(address >> shift) & 0xFFFF:x}" for shift in range(112, -1, -16)) + f"/{bits}"


def _address(chance: random.Random) -> str:
    return chance.choice([_ipv4, _ipv6])(chance)


def _network(chance: random.Random) -> str:
    return chance.choice([_ipv4, _ipv6])(chance, host=False)


def _time(chance: random.Random) -> str:
    seconds = chance.randrange(86_400)
    fraction = str(chance.randrange(10**6)).rjust(6, "0")[: chance.randrange(1, 7)]
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction}"


def _timetz(chance: random.Random) -> str:
    zone = chance.randrange(16 * 3600) // chance.choice([1, 60, 3600]) * chance.choice([1, 60, 900])
    zone %= 16 * 3600
    return f"{_time(chance)}{chance.choice('+-')}{zone // 3600:02}:{zone // 60 % 60:02}:{zone % 60:02}"


def _lsn(chance: random.Random) -> str:
    high, low = (chance.getrandbits(32) >> chance.randrange(32) for _ in range(2))
    return f"{high:X}/{low:X}"


ALPHABET = "ab'\\\"=>, :&|!()<-é漢😀1"


def _word(chance: random.Random, least: int = 1) -> str:
    return "".join(chance.choice(ALPHABET) for _ in range(chance.randrange(least, 6)))


def _quoted(chance: random.Random) -> str:
    return "'" + _word(chance).replace("\\", "\\\\").replace("'", "''") + "'"


def _lexeme(chance: random.Random) -> str:
    positions = [
        f"{chance.randrange(1, 20_000)}{chance.choice(['', 'A', 'B', 'C', 'D'])}" for _ in range(chance.randrange(5))
    ]
    return _quoted(chance) + (":" + ",".join(positions) if positions else "")


def _tsvector(chance: random.Random) -> str:
    return " ".join(_lexeme(chance) for _ in range(chance.randrange(6)))


def _tsquery(chance: random.Random, depth: int = 5) -> str:
    if depth == 0 or chance.random() < 0.2:
        marks = "".join(mark for mark in "*ABCD" if chance.random() < 0.15)
        return _quoted(chance) + (":" + marks if marks else "")
    operator = chance.choice(["&", "|", "<->", "!", f"<{chance.choice([0, 1, 2, 16_384])}>"])
    if operator == "!":
        return f"!({_tsquery(chance, depth - 1)})"
    return f"({_tsquery(chance, depth - 1)}) {operator} ({_tsquery(chance, depth - 1)})"


def _hstore_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _hstore(chance: random.Random) -> str:
    pairs = [(_word(chance, 0), chance.choice([None, _word(chance, 0)])) for _ in range(chance.randrange(6))]
    return ",".join(f"{_hstore_text(k)}=>{'NULL' if v is None else _hstore_text(v)}" for k, v in pairs)


ADDRESSES = (
    "0.0.0.0/0", "255.255.255.255", "10.1.2.3/8", "192.168.0.1/32", "::", "::/0", "::1", "::2", "::1:0",
    "1::", "::1.2.3.4", "::ffff:1.2.3.4", "::fffe:1.2.3.4", "::ffff:0:1.2.3.4", "0:0:0:0:0:ffff::",
    "::0.1.0.0", "1:0:0:2:0:0:0:3", "1:0:0:2:0:0:3:4", "0:0:1::", "1:2:3:4:5:6:7:0", "0:2:3:4:5:6:7:8",
    "1:0:2:0:3:0:4:0", "fe80::1/64", "2001:db8::ff00:42:8329/48", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)  # fmt: skip
NETWORKS = (
    "0.0.0.0/0", "10.0.0.0/8", "192.168.1.7/32", "::/0", "::1/128", "2001:db8::/32", "::ffff:1.2.3.0/120",
)  # fmt: skip
ZONED = (
    "13:45:00.5+05:30", "24:00:00-15:59:59", "00:00:00+15:59:59", "00:00:00+00", "1:02-00:00:01", "1:02-08",
)  # fmt: skip
QUERIES = (
    "", "a", "a & b | c", "a & (b | c)", "(a | b) & c", "!a", "!!a", "!(a & b)", "!(a <-> b)", "!a <-> !b",
    "a <-> b <-> c", "a <-> (b <-> c)", "(a <-> b) <2> c", "a <0> b", "a <-> (b & c)", "(a | b) <-> c",
    "a:*", "a:A", "a:*DCBA", "a & (b & c)", "a | (b | c)", "a & b & c", "!(!a | b)", r"'it''s' & 'a\\b'",
)  # fmt: skip
VECTORS = ("", "a", "a:1A,2 b", "a:16383C,1D", r"'it''s':3B 'back\\slash' 'é漢😀'")
HSTORES = ("", "a=>1", "a=>NULL", '""=>""', r'"\"\\"=>"é\"\\", b=>"NULL"')
TIMES = ("00:00:00", "24:00:00", "23:59:59.999999", "13:45:00.5", "1:2:3.00001")
LSNS = ("0/0", "1/ABC", "FFFFFFFF/FFFFFFFF", "16/B374D848", "80000000/0")
CHARS = ("", "a", "\\", "\\200", "\\377", "é")

CASES = (
    Case("inet", network.inet, ADDRESSES, _address),
    Case("cidr", network.cidr, NETWORKS, _network),
    Case("macaddr", network.macaddr, ("00:00:00:00:00:00", "ff:0A:b0:09:f0:0f"), lambda c: c.randbytes(6).hex()),
    Case("macaddr8", network.macaddr8, ("ff:0A:b0:09:f0:0f:00:01",), lambda c: c.randbytes(8).hex()),
    Case("varbit", bitstring.bit, ("", "0", "1", "00000001"), lambda c: f"{c.getrandbits(40):b}"),
    Case("bit(11)", bitstring.bit, ("00000000000", "11111111111"), lambda c: f"{c.getrandbits(11):011b}"),
    Case("time", clock.time_text, TIMES, _time),
    Case("timetz", clock.timetz, ZONED, _timetz),
    Case("pg_lsn", identifiers.pg_lsn, LSNS, _lsn),
    Case("uuid", identifiers.uuid_text, ("0" * 32, "f" * 32), lambda c: c.randbytes(16).hex()),
    Case('"char"', identifiers.char, CHARS, lambda c: f"\\{c.randrange(256):03o}"),
    Case("tid", identifiers.tid, ("(0,0)",), lambda c: f"({c.getrandbits(32)},{c.getrandbits(16)})"),
    Case("xid8", identifiers.xid8, ("0", "18446744073709551615", "10"), lambda c: str(c.getrandbits(64))),
    Case("point", geometric.point, ("(0,-0)", "(NaN,Infinity)", "(1e23,-inf)"), lambda c: _points(c, 1)),
    Case("lseg", geometric.lseg, ("(1,2),(3,4)",), lambda c: _points(c, 2)),
    Case("box", geometric.box, ("(1,2),(3,4)",), lambda c: _points(c, 2)),
    Case("path", geometric.path, ("((1,2))", "[(1,2)]", "((1,2),(3,4))"), _many_points),
    Case("polygon", geometric.polygon, ("((1,2))",), lambda c: f"({_points(c, c.randrange(1, 9))})"),
    Case("line", geometric.line, ("{1,2,3}", "{0,-1,1e20}"), _line),
    Case("circle", geometric.circle, ("<(1,2),3>", "<(0,0),0>", "<(1,2),Infinity>"), _circle),
    Case("tsvector", tsearch.tsvector, VECTORS, _tsvector),
    Case("tsquery", tsearch.tsquery, QUERIES, _tsquery),
    Case("hstore", hstore.hstore, HSTORES, _hstore),
)


def _as_server_prints(
    connection: psycopg.Connection, type_name: str, literals: list[str | None]
) -> tuple[list[bytes | None], list[str | None]]:
    """Each literal as the type's send function sends it, and as its output function prints it.

    Not `v::text`: for some types the cast is a function of its own (inet's always prints the netmask).
    """
    statement = "SELECT v::{} FROM unnest(%s::text[]) WITH ORDINALITY AS t(v, i) ORDER BY i"
    query = sql.SQL(statement).format(sql.SQL(type_name))
    sent = _raw_column(connection.execute(query, [literals], binary=True))
    printed = _raw_column(connection.execute(query, [literals], binary=False))
    return sent, [None if text is None else text.decode() for text in printed]


def _raw_column(cursor: psycopg.Cursor) -> list[bytes | None]:
    result = cursor.pgresult
    assert result is not None
    return [result.get_value(row, 0) for row in range(result.ntuples)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_a_value_reads_as_the_server_prints_it(connection: psycopg.Connection, case: Case) -> None:
    chance = random.Random(case.type)
    literals = [None, *case.literals, None, *(case.more(chance) for _ in range(RANDOM_VALUES)), None]
    values, printed = _as_server_prints(connection, case.type, literals)
    array = case.decoder().decode(Fields.of(values), Tally())
    array.validate(full=True)
    assert array.type == case.decoder().arrow_type
    assert array.to_pylist() == printed


def test_a_large_value_reads_as_the_server_prints_it(connection: psycopg.Connection) -> None:
    points = ",".join(f"({i},{i}.5)" for i in range(20_000))
    operands = " & ".join(f"'w{i}'" for i in range(2_000))
    for type_name, decoder, literal in (
        ("path", geometric.path, f"[{points}]"),
        ("varbit", bitstring.bit, "10" * 50_000),
        ("tsquery", tsearch.tsquery, operands),
        ("tsquery", tsearch.tsquery, "!(" * 500 + "a" + ")" * 500),
        ("tsvector", tsearch.tsvector, " ".join(f"w{i}:{i % 16_000 + 1}" for i in range(20_000))),
        ("hstore", hstore.hstore, ",".join(f"k{i}=>v{i}" for i in range(20_000))),
    ):
        values, printed = _as_server_prints(connection, type_name, [literal])
        assert decoder().decode(Fields.of(values), Tally()).to_pylist() == printed


def _neighbours(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])


def test_a_float_reads_as_the_server_prints_it(connection: psycopg.Connection) -> None:
    chance = np.random.default_rng(18)
    any_bits = chance.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    # Where a short decimal lies exactly between two floats, Postgres differs from Python and Arrow (1e23).
    short = np.array([float(f"{m}e{k}") for m in (1, 2, 3, 5, 7, 9, 11, 123) for k in range(-323, 307)])
    integers = chance.integers(1, 2**62, 5_000).astype(np.float64)
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e14, 1e15, 1e-4, 1e-5, 99999999999999.98])
    values = np.concatenate([any_bits, _neighbours(short), _neighbours(integers), _neighbours(powers), special])
    query = "SELECT v::text FROM unnest(%b::float8[]) WITH ORDINALITY AS t(v, i) ORDER BY i"
    printed = [text for (text,) in connection.execute(query, [values.tolist()])]
    data, offsets = float_text(values)
    text = data.tobytes().decode()
    assert [text[start:end] for start, end in pairwise(offsets)] == printed
