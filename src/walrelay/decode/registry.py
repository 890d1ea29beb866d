"""The type table: who decodes which Postgres type, and so which Arrow type it becomes.

A row serves both roads and every destination; what a destination calls a type is its own dialect's. Types are looked up
by name (`pg_catalog` types), by extension and name (hstore, pgvector …), or by kind (enum, array, composite, range,
multirange); domains were replaced by their base type when the catalog was read. What has no row arrives as bytes, or as
text where the user asked for it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from walrelay.decode import (
    bitstring,
    calendar_text,
    clock,
    datetime,
    fixed,
    geometric,
    hstore,
    identifiers,
    nested,
    network,
    numeric,
    text,
    tsearch,
)
from walrelay.decode.base import Decoder, Target
from walrelay.model.schema import PgType

Make = Callable[[PgType, Target], Decoder]


def always(decoder: Callable[[], Decoder]) -> Make:
    """For a type that is the same for every modifier and target."""
    return lambda _type, _target: decoder()


def _numeric(type_: PgType, _: Target) -> Decoder:
    declared = numeric.declared_decimal(type_.modifier)
    return numeric.numeric_text() if declared is None else numeric.DecimalDecoder(*declared)


def _uuid(_: PgType, target: Target) -> Decoder:
    return identifiers.uuid_text() if target.uuid_as_text else fixed.uuid()


def _time(_: PgType, target: Target) -> Decoder:
    return clock.time_text() if target.time_as_text else datetime.TimeDecoder()


def _dated(native: Callable[[], Decoder], text_form: Callable[[], Decoder]) -> Make:
    return lambda _type, target: text_form() if target.dates_as_text else native()


BUILTIN: dict[str, Make] = {
    "bool": always(fixed.BoolDecoder),
    "int2": always(fixed.int16),
    "int4": always(fixed.int32),
    "int8": always(fixed.int64),
    "oid": always(fixed.unsigned32),
    "xid": always(fixed.unsigned32),
    "cid": always(fixed.unsigned32),
    "xid8": always(identifiers.xid8),
    "float4": always(fixed.float32),
    "float8": always(fixed.float64),
    "numeric": _numeric,
    "money": lambda type_, _: numeric.MoneyDecoder(type_.scale),
    "text": always(text.text),
    "varchar": always(text.text),
    "bpchar": always(text.text),
    "name": always(text.text),
    "xml": always(text.text),
    "json": always(text.text),
    "unknown": always(text.text),
    "refcursor": always(text.text),
    "jsonb": always(text.versioned_text),
    "jsonpath": always(text.versioned_text),
    "char": always(identifiers.char),
    "bytea": always(text.binary),
    "date": _dated(datetime.DateDecoder, calendar_text.date_text),
    "time": _time,
    "timetz": always(clock.timetz),
    "timestamp": _dated(datetime.timestamp, calendar_text.timestamp_text),
    "timestamptz": _dated(datetime.timestamptz, calendar_text.timestamptz_text),
    "interval": always(datetime.IntervalDecoder),
    "uuid": _uuid,
    "inet": always(network.inet),
    "cidr": always(network.cidr),
    "macaddr": always(network.macaddr),
    "macaddr8": always(network.macaddr8),
    "bit": always(bitstring.bit),
    "varbit": always(bitstring.bit),
    "point": always(geometric.point),
    "lseg": always(geometric.lseg),
    "box": always(geometric.box),
    "path": always(geometric.path),
    "polygon": always(geometric.polygon),
    "line": always(geometric.line),
    "circle": always(geometric.circle),
    "tsvector": always(tsearch.tsvector),
    "tsquery": always(tsearch.tsquery),
    "pg_lsn": always(identifiers.pg_lsn),
    "tid": always(identifiers.tid),
}
# Object identifiers print as names that only the source can resolve; the number is what is stored.
BUILTIN |= dict.fromkeys(
    ("regclass", "regtype", "regproc", "regprocedure", "regoper", "regoperator", "regrole", "regnamespace",
     "regconfig", "regdictionary", "regcollation", "regdatabase"),
    BUILTIN["oid"],
)  # fmt: skip

EXTENSION: dict[tuple[str, str], Make] = {
    ("citext", "citext"): BUILTIN["text"],
    ("hstore", "hstore"): always(hstore.hstore),
    ("ltree", "ltree"): BUILTIN["jsonb"],
    ("ltree", "lquery"): BUILTIN["jsonb"],
    ("ltree", "ltxtquery"): BUILTIN["jsonb"],
    ("vector", "vector"): always(nested.VectorDecoder),
    ("vector", "halfvec"): always(lambda: nested.VectorDecoder(2)),
    ("postgis", "geometry"): BUILTIN["bytea"],
    ("postgis", "geography"): BUILTIN["bytea"],
}
UNKNOWN = BUILTIN["bytea"]


def _composite(type_: PgType, target: Target) -> Decoder:
    names = tuple(part.name for part in type_.fields)
    return nested.CompositeDecoder(names, tuple(decoder_for(part.type, target) for part in type_.fields))


def _range(type_: PgType, target: Target) -> nested.RangeDecoder:
    return nested.RangeDecoder(decoder_for(_inner(type_), target))


def _array(type_: PgType, target: Target) -> Decoder:
    zero_based = type_.kind == "vector_array"
    return nested.ArrayDecoder(decoder_for(_inner(type_), target), type_.dimensions, zero_based)


KIND: dict[str, Make] = {
    "enum": BUILTIN["text"],
    "array": _array,
    "vector_array": _array,
    "composite": _composite,
    "range": _range,
    "multirange": lambda type_, target: nested.MultirangeDecoder(_range(_inner(type_), target)),
}


def _inner(type_: PgType) -> PgType:
    if type_.element is None:
        raise ValueError(f"type {type_} has no element")
    return type_.element


def find_rule(type_: PgType) -> Make | None:
    """The row for a type, or None when the table has none. A composite without attributes has no bytes to speak of."""
    if type_.kind == "composite" and not type_.fields:
        return None
    if type_.kind != "base":
        return KIND[type_.kind]
    if type_.extension is not None:
        return EXTENSION.get((type_.extension, type_.name))
    return BUILTIN.get(type_.name) if type_.schema == "pg_catalog" else None


def is_known(type_: PgType) -> bool:
    """Whether the type and all its parts have a row."""
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return find_rule(type_) is not None and all(is_known(part) for part in parts)


def decoder_for(type_: PgType, target: Target) -> Decoder:
    return (find_rule(type_) or UNKNOWN)(type_, target)


def arrow_type(type_: PgType, target: Target) -> pa.DataType:
    return decoder_for(type_, target).arrow_type
