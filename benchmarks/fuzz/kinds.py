"""Every type that is fuzzed: all that the registry knows, and some that are made of others."""

from __future__ import annotations

import struct

from benchmarks.fuzz.values import (
    FLOATS,
    MAX_INT32,
    MAX_INT64,
    Kind,
    array_of,
    base,
    bit_string,
    cidr,
    composite_of,
    coordinates,
    counted,
    days,
    floats,
    halfvec,
    hstore,
    inet,
    interval,
    microseconds,
    multirange_of,
    numeric,
    packed,
    path,
    range_of,
    raw,
    text,
    tsquery,
    tsvector,
    vector,
    versioned,
)
from walrelay.model.schema import PgType

DAY = 86_400_000_000
INT32 = (-MAX_INT32 - 1, MAX_INT32)
INT64 = (-MAX_INT64 - 1, MAX_INT64)


def _modifier(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + 4


_PLAIN = [
    base("bool", packed(">b", (0, 1))),
    base("int2", packed(">h", (-32_768, 32_767))),
    base("int4", packed(">i", INT32)),
    base("int8", packed(">q", INT64)),
    *(base(name, packed(">I", (0, 2**32 - 1))) for name in ("oid", "xid", "cid", "regclass", "regtype")),
    base("xid8", packed(">Q", (0, 2**64 - 1))),
    base("float4", lambda rng: struct.pack(">f", rng.choice(FLOATS[:5]))),
    base("float8", floats(1)),
    base("numeric", numeric(12, 2), _modifier(12, 2)),
    base("numeric", numeric(38, 10), _modifier(38, 10)),
    base("numeric", numeric(60, None, (0xC000, 0xD000, 0xF000))),
    base("money", packed(">q", INT64)),
    *(
        base(name, text)
        for name in ("text", "varchar", "bpchar", "name", "xml", "json", "unknown", "refcursor", "bytea")
    ),
    base("jsonb", versioned),
    base("jsonpath", versioned),
    base("char", raw(1)),
    base("date", days),
    base("time", packed(">q", (0, DAY))),
    base("timetz", packed(">qi", (0, DAY), (-57_599, 57_599))),
    base("timestamp", microseconds),
    base("timestamptz", microseconds),
    base("interval", interval),
    base("uuid", raw(16)),
    base("inet", inet),
    base("cidr", cidr),
    base("macaddr", raw(6)),
    base("macaddr8", raw(8)),
    base("bit", bit_string),
    base("varbit", bit_string),
    base("point", coordinates(2)),
    base("lseg", coordinates(4)),
    base("box", coordinates(4)),
    base("path", path),
    base("polygon", counted(">i", 5, 2, coordinates)),
    base("line", coordinates(3)),
    base("circle", coordinates(3)),
    base("tsvector", tsvector),
    base("tsquery", tsquery),
    base("pg_lsn", packed(">Q", (0, 2**64 - 1))),
    base("tid", packed(">IH", (0, 2**32 - 1), (0, 65_535))),
    base("citext", text, extension="citext"),
    base("hstore", hstore, extension="hstore"),
    *(base(name, versioned, extension="ltree") for name in ("ltree", "lquery", "ltxtquery")),
    base("vector", vector, extension="vector"),
    base("halfvec", halfvec, extension="vector"),
    base("geometry", raw(21), extension="postgis"),
    base("geography", raw(21), extension="postgis"),
]
_BY_NAME = {kind.type.name: kind for kind in _PLAIN}
_INT2, _INT4, _TEXT, _TIMESTAMP = (_BY_NAME[name] for name in ("int2", "int4", "text", "timestamp"))
_NUMRANGE = range_of(_BY_NAME["numeric"], "numrange")
_PAIR = composite_of("pair", _INT4, _TEXT)

KINDS: tuple[Kind, ...] = (
    *_PLAIN,
    Kind(PgType(0, "mood", kind="enum", schema="public"), text),
    Kind(PgType(0, "mystery", schema="public"), raw(9)),
    Kind(PgType(0, "mystery", schema="public"), text, as_text=True),
    array_of(_INT4, "_int4"),
    array_of(_TEXT, "_text"),
    array_of(_INT4, "_int4", dimensions=2),
    array_of(_BY_NAME["numeric"], "_numeric"),
    array_of(_INT2, "int2vector", kind="vector_array"),
    _PAIR,
    composite_of("nested", _PAIR, array_of(_TEXT, "_text"), _TIMESTAMP),
    array_of(_PAIR, "_pair"),
    range_of(_INT4, "int4range"),
    range_of(_TIMESTAMP, "tsrange"),
    _NUMRANGE,
    multirange_of(_NUMRANGE, "nummultirange"),
    array_of(range_of(_INT4, "int4range"), "_int4range"),
)
