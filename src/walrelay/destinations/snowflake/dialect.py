"""Snowflake's names for types, and how their values are written in load files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from walrelay.changes.dialect import RANGE_MARKS, Dialect
from walrelay.changes.spark_dialect import DIALECT as SPARK
from walrelay.changes.spark_values import literal
from walrelay.decode.base import Target
from walrelay.decode.registry import arrow_type, find_rule
from walrelay.model.schema import Column, PgType

SNOWFLAKE = Target("snowflake", uuid_as_text=True, time_as_text=True)
_DOCUMENTS = ("json", "jsonb")
_MOST_SCALE = 37


def _object(_: Sequence[tuple[str, str]]) -> str:
    return "OBJECT"


@dataclass(frozen=True)
class SnowflakeDialect(Dialect):
    """`documents`: whether json and jsonb become VARIANT, which Snowflake writes anew, and not their text. `upper`:
    whether names are in upper case, so that nobody has to quote them."""

    documents: bool = False
    upper: bool = False

    def here(self, name: str) -> str:
        return name.upper() if self.upper else name

    def quoted(self, name: str) -> str:
        return super().quoted(self.here(name))

    def column_type(self, column: Column) -> str:
        return "VARIANT" if self.is_document(column) else super().column_type(column)

    def is_document(self, column: Column) -> bool:
        type_ = column.type
        is_json = type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in _DOCUMENTS
        return self.documents and is_json and not column.as_text

    def _flat(self, type_: PgType) -> str:
        made = arrow_type(type_, self.target)
        if pa.types.is_decimal(made):
            return f"NUMBER({made.precision}, {made.scale})" if made.scale <= _MOST_SCALE else self.flat[pa.string()]
        return super()._flat(type_)


DIALECT = SnowflakeDialect(
    target=SNOWFLAKE,
    flat={
        pa.bool_(): "BOOLEAN",
        pa.int16(): "NUMBER(38, 0)",
        pa.int32(): "NUMBER(38, 0)",
        pa.int64(): "NUMBER(38, 0)",
        pa.float32(): "FLOAT",
        pa.float64(): "FLOAT",
        pa.string(): "VARCHAR",
        pa.large_string(): "VARCHAR",
        pa.binary(): "BINARY",
        pa.large_binary(): "BINARY",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP_NTZ(6)",
        pa.timestamp("us", "UTC"): "TIMESTAMP_TZ(6)",
    },
    list_of=lambda _: "ARRAY",
    struct_of=_object,
    quote='"',
    own={"interval": "OBJECT"},
)
_FROM_FILE = {
    "BINARY": "TO_BINARY({}::VARCHAR, 'HEX')",
    "TIMESTAMP_NTZ(6)": "{}::VARCHAR::TIMESTAMP_NTZ(6)",
    "TIMESTAMP_TZ(6)": "{}::VARCHAR::TIMESTAMP_TZ(6)",
    "ARRAY": "PARSE_JSON({}::VARCHAR)::ARRAY",
    "OBJECT": "PARSE_JSON({}::VARCHAR)::OBJECT",
    "VARIANT": "PARSE_JSON({}::VARCHAR)",
}
"""What stands as text in load files, which Snowflake reads in one way only; the rest by a cast."""


def from_file(type_: str, value: str) -> str:
    """SQL for a value of a load file in its column's type."""
    return _FROM_FILE.get(type_, f"{{}}::{type_}").format(value)


# ------------------------------------------------------------------------------------------------------ Spark's side


def landed(column: Column, value: str) -> str:
    """Spark SQL for a value as a load file has it: nested ones as JSON."""
    type_ = column.type
    if column.as_text:
        return value
    if _is_nested(type_):
        return f"to_json({_part(type_, value, 0)}, map('ignoreNullFields', 'false'))"
    return _leaf(type_, value)


def _is_nested(type_: PgType) -> bool:
    return bool(pa.types.is_nested(arrow_type(type_, SNOWFLAKE)))


def _leaf(type_: PgType, value: str) -> str:
    made = arrow_type(type_, SNOWFLAKE)
    if pa.types.is_binary(made) or pa.types.is_large_binary(made):
        return f"hex({value})"
    if pa.types.is_timestamp(made):
        return f"{_clock(value)} || '+00:00'" if made.tz else _clock(value)
    if pa.types.is_decimal(made) and made.scale > _MOST_SCALE:
        return f"CAST({value} AS STRING)"
    return value


def _clock(value: str) -> str:
    return f"date_format({value}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"


def _part(type_: PgType, value: str, depth: int) -> str:
    """A value inside of a nested one. Numbers that JSON has no way to write, or readers round, are text."""
    if type_.kind == "composite" and find_rule(type_) is not None:
        fields = [(one.name, _part(one.type, f"{value}.{SPARK.quoted(one.name)}", depth)) for one in type_.fields]
        return _struct(value, fields)
    if type_.kind == "range":
        assert type_.element is not None
        ends = [(name, _part(type_.element, f"{value}.{name}", depth)) for name in ("lower", "upper")]
        return _struct(value, [*ends, *((mark, f"{value}.{mark}") for mark in RANGE_MARKS)])
    if type_.element is not None:
        return _items(type_.element, value, type_.dimensions if type_.kind != "multirange" else 1, depth)
    made = arrow_type(type_, SNOWFLAKE)
    if pa.types.is_list(made):
        return f"transform({value}, w{depth} -> {_float(f'w{depth}')})"
    if pa.types.is_floating(made):
        return _float(value)
    if pa.types.is_date(made) or pa.types.is_decimal(made):
        return f"CAST({value} AS STRING)"
    return value if pa.types.is_struct(made) else _leaf(type_, value)


def _float(value: str) -> str:
    """As text, in as many digits as it needs: JSON has neither NaN nor infinity, and readers do not keep -0.0."""
    return f"CAST({value} AS STRING)"


def _items(element: PgType, value: str, levels: int, depth: int) -> str:
    item = f"w{depth}"
    inner = _part(element, item, depth + 1) if levels == 1 else _items(element, item, levels - 1, depth + 1)
    return value if inner == item else f"transform({value}, {item} -> {inner})"


def _struct(value: str, parts: Sequence[tuple[str, str]]) -> str:
    fields = ", ".join(f"{literal(name)}, {part}" for name, part in parts)
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"
