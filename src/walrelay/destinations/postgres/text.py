"""Arrow columns → text that Postgres reads, a column at a time: for COPY in its CSV format.

Columns are those of the target `POSTGRES`, in which dates, times and uuids are text already. Numbers and flags stay
what they are, since the CSV writer prints them as Postgres reads them; within arrays and the like everything is text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from walrelay.decode.nested import list_array
from walrelay.decode.registry import find_rule
from walrelay.decode.retarget import list_parts, numbers
from walrelay.model.schema import Column, PgType

_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
"""Two digits for each byte."""
_HOUR, _SECOND = 3_600_000_000, 1_000_000
_MONEY_SCALE = 2
"""Of our sessions (lc_monetary is C): what is stored is the number of cents, whatever a server calls them."""
_NEEDS_QUOTES = r'^$|[{}",;\\\s\v]|^(?i:null)$'
"""What Postgres writes with quotes as an element of an array."""
_WRITE = pacsv.WriteOptions(include_header=False, quoting_style="needed", batch_size=16_384)


def column_text(array: pa.Array, column: Column) -> pa.Array:
    """The column as a CSV file may have it."""
    if column.as_text:
        return array
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return array
    return value_text(array, column.type)


def csv_bytes(columns: list[pa.Array]) -> pa.Buffer:
    """Rows in CSV: text within quotes, NULL as nothing."""
    sink = pa.BufferOutputStream()
    names = [str(number) for number in range(len(columns))]
    pacsv.write_csv(pa.Table.from_arrays(columns, names), sink, _WRITE)
    return sink.getvalue()


def value_text(array: pa.Array, type_: PgType, *, is_inner: bool = False) -> pa.Array:
    """Every value as Postgres's text for it; NULL stays NULL."""
    if pa.types.is_null(array.type):
        return array.cast(pa.string())
    if find_rule(type_) is None or type_.kind in ("base", "enum"):
        return _leaf(array, type_)
    if type_.kind == "composite":
        return _composites(array, type_)
    assert type_.element is not None
    if type_.kind == "range":
        return _ranges(array, type_.element)
    if type_.kind == "multirange":
        return _braced(*_listed(array, value_text(_inner(array), type_.element)), "{", "}", ",")
    if type_.kind == "vector_array":
        return _braced(*_listed(array, value_text(_inner(array), type_.element)), "", "", " ")
    return _arrays(array, type_.element, type_.dimensions, is_inner)


# --------------------------------------------------------------------------------------------------------------- leaves


def _leaf(array: pa.Array, type_: PgType) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # PostGIS reads hexadecimal digits alone.
        return _hex(array, "" if type_.extension == "postgis" else "\\x")
    if type_.name == "interval" and pa.types.is_struct(kind):
        return _intervals(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _braced(*_listed(array, _inner(array).cast(pa.string())), "[", "]", ",")
    if type_.name == "money" and pa.types.is_decimal(kind):
        cents = pa.decimal128(kind.precision, _MONEY_SCALE)
        array = pa.Array.from_buffers(cents, len(array), array.buffers(), array.null_count, array.offset)
    return array if pa.types.is_string(kind) or pa.types.is_large_string(kind) else array.cast(pa.string())


def _hex(array: pa.Array, prefix: str) -> pa.Array:
    array = array.cast(pa.large_binary())
    if len(array) == 0:
        return pa.array([], pa.large_string())
    offsets = numbers(
        pa.Array.from_buffers(pa.int64(), len(array) + 1, [None, array.buffers()[1]], 0, array.offset), "i8"
    )
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    digits = pa.py_buffer(_HEX[data])
    moved = pa.py_buffer((offsets - offsets[0]) * 2)
    valid = pa.array(np.ones(len(array), bool)) if array.null_count == 0 else array.is_valid()
    texts = pa.Array.from_buffers(pa.large_string(), len(array), [None, moved, digits])
    return pc.if_else(valid, _joined(pa.scalar(prefix, pa.large_string()), texts), pa.scalar(None, pa.large_string()))


def _intervals(array: pa.StructArray) -> pa.Array:
    months, days, micros = array.flatten()
    hours = pc.divide(micros, _HOUR)
    rest = pc.abs(pc.subtract(micros, pc.multiply(hours, _HOUR)))
    sign = pc.if_else(pc.less(micros, 0), "-", "")
    seconds, fraction = pc.divide(rest, _SECOND), pc.subtract(rest, pc.multiply(pc.divide(rest, _SECOND), _SECOND))
    text = _joined(
        months.cast(pa.string()), pa.scalar(" mons "), days.cast(pa.string()), pa.scalar(" days "),
        hours.cast(pa.string()), pa.scalar(" hours "), sign, seconds.cast(pa.string()), pa.scalar("."),
        pc.utf8_lpad(fraction.cast(pa.string()), 6, "0"), pa.scalar(" secs"),
    )  # fmt: skip
    # Infinite ones have all three parts at the end of their range.
    ends = [
        pc.and_(pc.and_(pc.equal(months, end), pc.equal(days, end)), pc.equal(micros, whole))
        for end, whole in ((2**31 - 1, 2**63 - 1), (-(2**31), -(2**63)))
    ]
    return pc.if_else(ends[0], "infinity", pc.if_else(ends[1], "-infinity", text))


# --------------------------------------------------------------------------------------------------------------- nested


def _joined(*parts: Any) -> pa.Array:
    """Texts one behind the other; NULL where one is."""
    kind = pa.large_string() if any(pa.types.is_large_string(part.type) for part in parts) else pa.string()
    return pc.binary_join_element_wise(*(part.cast(kind) for part in parts), pa.scalar("", kind))


def _quoted(texts: pa.Array) -> pa.Array:
    """Within double quotes, and a backslash before those and before backslashes."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _joined(pa.scalar('"'), escaped, pa.scalar('"'))


def _inner(array: pa.ListArray) -> pa.Array:
    return list_parts(array)[1]


def _listed(array: pa.ListArray, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Lists of the texts, as the array has them; and the array."""
    totals, _ = list_parts(array)
    if pa.types.is_large_string(texts.type):
        texts = texts.cast(pa.string())
    return list_array(pa.list_(pa.string()), None, totals, texts), array


def _delimiter(element: PgType) -> str:
    """Between elements of an array; of all types that we know only one has another than a comma."""
    return ";" if element.kind == "base" and (element.schema, element.name) == ("pg_catalog", "box") else ","


def _braced(lists: pa.ListArray, array: pa.Array, begin: str, end: str, between: str) -> pa.Array:
    joined = _joined(pa.scalar(begin), pc.binary_join(lists, between), pa.scalar(end))
    if array.null_count == 0:
        return joined
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, joined.type))


def _arrays(array: pa.ListArray, element: PgType, depth: int, is_inner: bool) -> pa.Array:
    """`is_inner`: it is a text itself, and so is to look as Postgres prints it."""
    inner = _inner(array)
    if depth > 1:
        texts = _arrays(inner, element, depth - 1, is_inner)
    else:
        plain = value_text(inner, element, is_inner=element.kind == "array").cast(pa.string())
        texts = _quoted(plain)
        if is_inner:
            texts = pc.if_else(pc.match_substring_regex(plain, _NEEDS_QUOTES), texts, plain)
        texts = pc.coalesce(texts, pa.scalar("NULL"))
    return _braced(*_listed(array, texts), "{", "}", _delimiter(element))


def _composites(array: pa.StructArray, type_: PgType) -> pa.Array:
    parts: list[Any] = []
    for values, attribute in zip(array.flatten(), type_.fields, strict=True):
        text = _quoted(value_text(values, attribute.type).cast(pa.string()))
        parts += [pa.scalar(","), pc.coalesce(text, pa.scalar(""))]
    text = _joined(pa.scalar("("), *parts[1:], pa.scalar(")"))
    return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, text.type))


def _ranges(array: pa.StructArray, bound: PgType) -> pa.Array:
    lower, upper, lower_inc, upper_inc, empty = array.flatten()
    ends = [pc.coalesce(_quoted(value_text(one, bound).cast(pa.string())), pa.scalar("")) for one in (lower, upper)]
    text = _joined(pc.if_else(lower_inc, "[", "("), ends[0], pa.scalar(","), ends[1], pc.if_else(upper_inc, "]", ")"))
    text = pc.if_else(empty, pa.scalar("empty"), text)
    return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, text.type))
