"""What a reader of a lake finds, in the form in which `tests.roundtrip.compare` writes it as Postgres prints it.

Taken from the numbers that Arrow holds: Python has no days before the year 1 or after 9999, and lakes have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INTERVAL = ["months", "days", "microseconds"]
MICROS_OF_A_DAY = 86_400_000_000
NAMES = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "varchar": "string",
    "uuid": "string",
    "time": "string",
    "blob": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "interval": "struct<months:int,days:int,microseconds:bigint>",
}


def spark_type(named: str) -> str:
    """Spark's name of the type that is in a lake what this one is in DuckDB."""
    return _spark_type(duckdb.sqltype(named))


def _spark_type(type_: Any) -> str:
    if type_.id == "list":
        return f"array<{_spark_type(type_.children[0][1])}>"
    if type_.id == "struct":
        return "struct<" + ",".join(f"{name}:{_spark_type(part)}" for name, part in type_.children) + ">"
    if type_.id == "decimal":
        return "decimal({},{})".format(*(number for _, number in type_.children))
    return NAMES[type_.id]


def plain(array: pa.Array) -> list[Any]:
    """Booleans, floats and bytes as they are, every other value as text; lists, and dicts by field."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain(chunk)]
    kind = array.type
    if pa.types.is_struct(kind):
        values = _structs(array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _lists(array)
    else:
        return _leaves(array)
    return [value if there else None for value, there in zip(values, array.is_valid().to_pylist(), strict=True)]


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    parts = array.flatten()
    if names == INTERVAL:
        return [interval(*row) for row in zip(*(part.to_pylist() for part in parts), strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*map(plain, parts), strict=True)]


def _lists(array: pa.Array) -> Iterator[list[Any]]:
    items = iter(plain(array.flatten()))
    for length in pc.list_value_length(array).to_pylist():
        yield [next(items) for _ in range(length or 0)]


def _leaves(array: pa.Array) -> list[Any]:
    kind = array.type
    write: Callable[[Any], Any] = str
    if pa.types.is_date32(kind):
        array, write = array.cast(pa.int32()), day
    elif pa.types.is_timestamp(kind):
        assert kind.unit == "us" and kind.tz in (None, "UTC", "+00:00", "Etc/UTC"), kind
        array, write = array.cast(pa.int64()), local if kind.tz is None else instant
    elif pa.types.is_decimal(kind):
        write = "{:f}".format
    elif pa.types.is_boolean(kind) or pa.types.is_floating(kind) or _is_bytes(kind):
        return array.to_pylist()
    return [None if value is None else write(value) for value in array.to_pylist()]


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def day(days: int) -> str:
    """Since 1970, in the calendar that was always Gregorian. The year 0 is 1 BC."""
    year, month, of_month = str(np.datetime64(days, "D")).rsplit("-", 2)
    if int(year) > 0:
        return f"{int(year):04}-{month}-{of_month}"
    return f"{1 - int(year):04}-{month}-{of_month} BC"


def local(micros: int, zone: str = "") -> str:
    days, rest = divmod(micros, MICROS_OF_A_DAY)
    date, _, era = day(days).partition(" ")
    seconds, fraction = divmod(rest, 10**6)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    clock += f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{date} {clock}{zone}" + f" {era}" * bool(era)


def instant(micros: int) -> str:
    return local(micros, "+00")


def interval(months: int | None, days: int | None, micros: int | None) -> str | None:
    """As DuckDB writes its own, which the comparison knows."""
    if months is None or days is None or micros is None:
        assert months is days is micros is None, "a part of an interval is missing"
        return None
    seconds, fraction = divmod(abs(micros), 10**6)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"{months} months {days} days {'-' * (micros < 0)}{clock}"
