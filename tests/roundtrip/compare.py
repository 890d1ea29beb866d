"""Reads a column back from DuckDB and writes its values as Postgres prints them; shares nothing with the decoders.

Every leaf is taken as DuckDB's own cast to VARCHAR gives it, save bytes, booleans and floats, which Python can hold.
The outer forms of arrays, composites and ranges follow array_out, record_out and range_out.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType

PRINTING = (
    "SET DateStyle = 'ISO'; SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET bytea_output = 'hex';"
    " SET extra_float_digits = 1; SET client_encoding = 'UTF8'"
)
_HELD_BY_PYTHON = ("blob", "boolean", "float", "double")


def printed_by_postgres(
    connection: psycopg.Connection, table: TableName, expression: str = "value"
) -> list[str | None]:
    """What the type's output function writes, by id. A cast to text is something else: it drops bpchar's padding."""
    query = sql.SQL("SELECT {} FROM {} ORDER BY id").format(
        sql.SQL(expression), sql.Identifier(table.schema, table.name)
    )
    connection.execute(PRINTING)
    result = connection.execute(query).pgresult
    assert result is not None
    values = (result.get_value(row, 0) for row in range(result.ntuples))
    return [None if value is None else value.decode() for value in values]


def read_back(connection: Any, table: TableName, column: Column) -> list[str | None]:
    """DuckDB's values of the column, by id, in Postgres's words."""
    connection.execute("SET TimeZone = 'UTC'")
    held = column_type(connection, table, column.name)
    values = connection.execute(
        f"SELECT {_quoted(column.name)}::{readable(held)} FROM {_place(table)} ORDER BY id"
    ).fetchall()
    return [value if column.as_text else in_words(column.type, value) for (value,) in values]


def column_type(connection: Any, table: TableName, column: str) -> Any:
    """The column's type as DuckDB's Python object."""
    return connection.sql(f"SELECT {_quoted(column)} FROM {_place(table)}").types[0]


def readable(held: Any) -> str:
    """The DuckDB type to cast to so that Python gets every value as it is."""
    if held.id == "list":
        return readable(held.children[0][1]) + "[]"
    if held.id == "struct":
        return "STRUCT(" + ", ".join(f"{_quoted(name)} {readable(part)}" for name, part in held.children) + ")"
    return str(held) if held.id in _HELD_BY_PYTHON else "VARCHAR"


def _place(table: TableName) -> str:
    return f"{_quoted(table.schema)}.{_quoted(table.name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def in_words(type_: PgType, value: Any) -> str | None:
    """The value as the type's output function would write it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    match type_.kind:
        case "array":
            return _array(type_, value, type_.dimensions)
        case "vector_array":
            assert type_.element
            return " ".join(str(in_words(type_.element, item)) for item in value)
        case "composite":
            return _record([in_words(part.type, value[part.name]) for part in type_.fields])
        case "range":
            return _range(type_, value)
        case "multirange":
            assert type_.element
            # Postgres has no NULL in one; a destination may, for a range whose bound it cannot hold.
            return "{" + ",".join("NULL" if item is None else _range(type_.element, item) for item in value) + "}"
        case _:
            return _leaf(type_, value)


def _leaf(type_: PgType, value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return float_words(value, single=type_.name == "float4")
    if isinstance(value, list):
        return "[" + ",".join(float_words(item, single=True) for item in value) + "]"
    assert isinstance(value, str)
    if type_.schema == "pg_catalog" and type_.name in ("date", "timestamp", "timestamptz"):
        return value.replace(" (BC)", "") + " BC" * (" (BC)" in value)
    if type_.schema == "pg_catalog" and type_.name == "interval":
        return interval_words(*parts_of_interval(value))
    if type_.schema == "pg_catalog" and type_.name == "numeric":
        # DuckDB leaves the zero out of DECIMAL(5,5).
        return re.sub(r"^(-?)\.", r"\g<1>0.", value)
    return value


def float_words(value: float, *, single: bool) -> str:
    """The shortest digits that give the same bits again; with an exponent outside of 1e-4 … 1e6 (float8: 1e15)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if single else np.float64(value)
    scientific = np.format_float_scientific(number, trim="-", exp_digits=2)
    exponent = int(scientific.partition("e")[2])
    if -4 <= exponent < (6 if single else 15):
        return np.format_float_positional(number, trim="-")
    return scientific


_UNITS = {"year": 12, "month": 1}
_INTERVAL = re.compile(r"(-?\d+) (year|month|day)s?|(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")


def parts_of_interval(text: str) -> tuple[int, int, int]:
    """(months, days, microseconds) of DuckDB's text for an interval."""
    months = days = micros = 0
    rest = _INTERVAL.sub("", text).strip()
    assert not rest, f"not an interval of DuckDB's: {text}"
    for number, unit, sign, hours, minutes, seconds, fraction in _INTERVAL.findall(text):
        if unit == "day":
            days = int(number)
        elif unit:
            months += int(number) * _UNITS[unit]
        else:
            total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 10**6 + int(fraction.ljust(6, "0") or 0)
            micros = -total if sign else total
    return months, days, micros


def interval_words(months: int, days: int, micros: int) -> str:
    """EncodeInterval in style postgres: a sign of its own for each part, `+` only after a negative one."""
    words: list[str] = []
    before_is_negative = False
    years = abs(months) // 12 * (1 if months > 0 else -1)
    for number, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if number:
            plus = "+" if before_is_negative and number > 0 else ""
            words.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            before_is_negative = number < 0
    if micros or not words:
        seconds, fraction = divmod(abs(micros), 10**6)
        sign = "-" if micros < 0 else "+" if before_is_negative else ""
        clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words.append(clock + (f".{fraction:06}".rstrip("0") if fraction else ""))
    return " ".join(words)


_BLANKS = " \t\n\v\f\r"


def _array(type_: PgType, items: list[Any], levels: int) -> str:
    element = type_.element
    assert element
    # Postgres knows one empty array, whatever was declared.
    if not items:
        return "{}"
    # Of all types box alone has another delimiter: its own text has commas.
    delimiter = ";" if element.name == "box" and element.schema == "pg_catalog" else ","
    if levels > 1:
        return "{" + delimiter.join(_array(type_, item, levels - 1) for item in items) + "}"
    return "{" + delimiter.join(_array_item(in_words(element, item), delimiter) for item in items) + "}"


def _array_item(text: str | None, delimiter: str) -> str:
    if text is None:
        return "NULL"
    if text and text.upper() != "NULL" and not set(text) & set('"\\{}' + delimiter + _BLANKS):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _record(parts: list[str | None]) -> str:
    return "(" + ",".join("" if part is None else _part(part, '"\\(),' + _BLANKS) for part in parts) + ")"


def _range(type_: PgType, value: dict[str, Any]) -> str:
    assert type_.element
    if value["empty"]:
        assert value["lower"] is None and value["upper"] is None
        return "empty"
    lower, upper = (in_words(type_.element, value[bound]) for bound in ("lower", "upper"))
    special = '"\\()[],' + _BLANKS
    return (
        ("[" if value["lower_inc"] else "(")
        + ("" if lower is None else _part(lower, special))
        + ","
        + ("" if upper is None else _part(upper, special))
        + ("]" if value["upper_inc"] else ")")
    )


def _part(text: str, special: str) -> str:
    if text and not set(text) & set(special):
        return text
    return '"' + re.sub(r'(["\\])', r"\1\1", text) + '"'
