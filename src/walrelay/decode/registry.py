"""The type table: which Postgres type becomes which Arrow, DuckDB and Spark type, and who decodes it.

A row serves both roads and every destination. Types are looked up by name (`pg_catalog` types), by extension and name
(hstore, pgvector …), or by kind (enum, array, composite, range, multirange); domains were replaced by their base type
when the catalog was read. What has no row arrives as bytes, or as text where the user asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class TypeRule:
    """One row: the decoder (which knows its Arrow type), the DuckDB type and the Spark type."""

    decoder: Make
    duckdb: Callable[[PgType], str]
    spark: Callable[[PgType], str]


def rule(decoder: Callable[[], Decoder], duckdb: str, spark: str) -> TypeRule:
    """A row for a type that is the same for every modifier and target."""
    return TypeRule(lambda _type, _target: decoder(), lambda _: duckdb, lambda _: spark)


def as_text(decoder: Callable[[], Decoder]) -> TypeRule:
    return rule(decoder, "VARCHAR", "STRING")


def _numeric(type_: PgType, _: Target) -> Decoder:
    declared = numeric.declared_decimal(type_.modifier)
    return numeric.numeric_text() if declared is None else numeric.DecimalDecoder(*declared)


def _decimal_name(type_: PgType, otherwise: str) -> str:
    declared = numeric.declared_decimal(type_.modifier)
    return otherwise if declared is None else f"DECIMAL({declared[0]},{declared[1]})"


def _uuid(_: PgType, target: Target) -> Decoder:
    return identifiers.uuid_text() if target.uuid_as_text else fixed.uuid()


def _time(_: PgType, target: Target) -> Decoder:
    return clock.time_text() if target.time_as_text else datetime.TimeDecoder()


def _dated(native: Callable[[], Decoder], text_form: Callable[[], Decoder]) -> Make:
    return lambda _type, target: text_form() if target.dates_as_text else native()


def _money_name(type_: PgType) -> str:
    return f"DECIMAL({numeric.MONEY_DIGITS},{type_.scale})"


_INTERVAL_SPARK = "STRUCT<months: INT, days: INT, microseconds: BIGINT>"

BUILTIN: dict[str, TypeRule] = {
    "bool": rule(fixed.BoolDecoder, "BOOLEAN", "BOOLEAN"),
    "int2": rule(fixed.int16, "SMALLINT", "SMALLINT"),
    "int4": rule(fixed.int32, "INTEGER", "INT"),
    "int8": rule(fixed.int64, "BIGINT", "BIGINT"),
    "oid": rule(fixed.unsigned32, "BIGINT", "BIGINT"),
    "xid": rule(fixed.unsigned32, "BIGINT", "BIGINT"),
    "cid": rule(fixed.unsigned32, "BIGINT", "BIGINT"),
    "xid8": as_text(identifiers.xid8),
    "float4": rule(fixed.float32, "FLOAT", "FLOAT"),
    "float8": rule(fixed.float64, "DOUBLE", "DOUBLE"),
    "numeric": TypeRule(_numeric, lambda t: _decimal_name(t, "VARCHAR"), lambda t: _decimal_name(t, "STRING")),
    "money": TypeRule(lambda t, _: numeric.MoneyDecoder(t.scale), _money_name, _money_name),
    "text": as_text(text.text),
    "varchar": as_text(text.text),
    "bpchar": as_text(text.text),
    "name": as_text(text.text),
    "xml": as_text(text.text),
    "json": as_text(text.text),
    "unknown": as_text(text.text),
    "refcursor": as_text(text.text),
    "jsonb": as_text(text.versioned_text),
    "jsonpath": as_text(text.versioned_text),
    "char": as_text(identifiers.char),
    "bytea": rule(text.binary, "BLOB", "BINARY"),
    "date": TypeRule(_dated(datetime.DateDecoder, calendar_text.date_text), lambda _: "DATE", lambda _: "DATE"),
    "time": TypeRule(_time, lambda _: "TIME", lambda _: "STRING"),
    "timetz": as_text(clock.timetz),
    "timestamp": TypeRule(
        _dated(datetime.timestamp, calendar_text.timestamp_text),
        lambda _: "TIMESTAMP",
        lambda _: "TIMESTAMP_NTZ",
    ),
    "timestamptz": TypeRule(
        _dated(datetime.timestamptz, calendar_text.timestamptz_text),
        lambda _: "TIMESTAMP WITH TIME ZONE",
        lambda _: "TIMESTAMP",
    ),
    "interval": rule(datetime.IntervalDecoder, "INTERVAL", _INTERVAL_SPARK),
    "uuid": TypeRule(_uuid, lambda _: "UUID", lambda _: "STRING"),
    "inet": as_text(network.inet),
    "cidr": as_text(network.cidr),
    "macaddr": as_text(network.macaddr),
    "macaddr8": as_text(network.macaddr8),
    "bit": as_text(bitstring.bit),
    "varbit": as_text(bitstring.bit),
    "point": as_text(geometric.point),
    "lseg": as_text(geometric.lseg),
    "box": as_text(geometric.box),
    "path": as_text(geometric.path),
    "polygon": as_text(geometric.polygon),
    "line": as_text(geometric.line),
    "circle": as_text(geometric.circle),
    "tsvector": as_text(tsearch.tsvector),
    "tsquery": as_text(tsearch.tsquery),
    "pg_lsn": as_text(identifiers.pg_lsn),
    "tid": as_text(identifiers.tid),
}
# Object identifiers print as names that only the source can resolve; the number is what is stored.
BUILTIN |= dict.fromkeys(
    ("regclass", "regtype", "regproc", "regprocedure", "regoper", "regoperator", "regrole", "regnamespace",
     "regconfig", "regdictionary", "regcollation", "regdatabase"),
    BUILTIN["oid"],
)  # fmt: skip

EXTENSION: dict[tuple[str, str], TypeRule] = {
    ("citext", "citext"): BUILTIN["text"],
    ("hstore", "hstore"): as_text(hstore.hstore),
    ("ltree", "ltree"): BUILTIN["jsonb"],
    ("ltree", "lquery"): BUILTIN["jsonb"],
    ("ltree", "ltxtquery"): BUILTIN["jsonb"],
    ("vector", "vector"): rule(nested.VectorDecoder, "FLOAT[]", "ARRAY<FLOAT>"),
    ("vector", "halfvec"): rule(lambda: nested.VectorDecoder(2), "FLOAT[]", "ARRAY<FLOAT>"),
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


DOUBLE, BACK = '"', "`"


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote


def _range_spark(type_: PgType) -> str:
    bound = spark_type(_inner(type_))
    return f"STRUCT<lower: {bound}, upper: {bound}, lower_inc: BOOLEAN, upper_inc: BOOLEAN, empty: BOOLEAN>"


def _range_duckdb(type_: PgType) -> str:
    bound = duckdb_type(_inner(type_))
    return f"STRUCT(lower {bound}, upper {bound}, lower_inc BOOLEAN, upper_inc BOOLEAN, empty BOOLEAN)"


def _array_spark(type_: PgType) -> str:
    return "ARRAY<" * type_.dimensions + spark_type(_inner(type_)) + ">" * type_.dimensions


KIND: dict[str, TypeRule] = {
    "enum": BUILTIN["text"],
    "array": TypeRule(_array, lambda t: duckdb_type(_inner(t)) + "[]" * t.dimensions, _array_spark),
    "vector_array": TypeRule(_array, lambda t: duckdb_type(_inner(t)) + "[]", _array_spark),
    "composite": TypeRule(
        _composite,
        lambda t: f"STRUCT({', '.join(_quoted(f.name, DOUBLE) + ' ' + duckdb_type(f.type) for f in t.fields)})",
        lambda t: f"STRUCT<{', '.join(_quoted(f.name, BACK) + ': ' + spark_type(f.type) for f in t.fields)}>",
    ),
    "range": TypeRule(_range, _range_duckdb, _range_spark),
    "multirange": TypeRule(
        lambda t, target: nested.MultirangeDecoder(_range(_inner(t), target)),
        lambda t: _range_duckdb(_inner(t)) + "[]",
        lambda t: f"ARRAY<{_range_spark(_inner(t))}>",
    ),
}


def _inner(type_: PgType) -> PgType:
    if type_.element is None:
        raise ValueError(f"type {type_} has no element")
    return type_.element


def find_rule(type_: PgType) -> TypeRule | None:
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
    return (find_rule(type_) or UNKNOWN).decoder(type_, target)


def arrow_type(type_: PgType, target: Target) -> pa.DataType:
    return decoder_for(type_, target).arrow_type


def duckdb_type(type_: PgType) -> str:
    return (find_rule(type_) or UNKNOWN).duckdb(type_)


def spark_type(type_: PgType) -> str:
    return (find_rule(type_) or UNKNOWN).spark(type_)
