"""Values of one Postgres type said in another, exactly or not at all.

For changes that are older than an altered type. What the server computed for the rows that were there at the time is
not known here: these are the values that the changes brought.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.base import bitmap
from walrelay.decode.json_text import json_values
from walrelay.decode.nested import list_array
from walrelay.decode.retarget import list_parts
from walrelay.model.schema import Column, PgType

INT64_DIGITS: Final = 19


class InexactError(Exception):
    """A value has no equal in the other type. Never quotes the value (SEMANTICS 22)."""


_FAMILY: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), "text"),
    **{name: name for name in ("bool", "numeric", "date", "timestamp")},
}
"""What a value means. A type that is missing here may look like text and still mean something else: bit, "char"."""

CONVERSIONS: Final = frozenset(
    {
        ("integer", "integer"), ("integer", "numeric"), ("integer", "float"), ("integer", "bool"), ("integer", "text"),
        ("bool", "integer"), ("bool", "text"),
        ("numeric", "numeric"), ("numeric", "integer"), ("numeric", "text"),
        ("float", "float"), ("float", "integer"), ("float", "numeric"),
        ("text", "integer"), ("text", "numeric"), ("text", "bool"), ("text", "date"), ("text", "timestamp"),
        ("date", "timestamp"), ("timestamp", "date"),
    }
)  # fmt: skip
"""No numeric becomes a float (SEMANTICS 20), no moment a time of day in a zone that nobody has named."""


def exact_column(array: pa.Array, before: Column, after: Column, wanted: pa.DataType) -> pa.Array:
    """The column's values as `wanted`, which is how `after` is held. Raises InexactError."""
    if array.type == wanted or array.null_count == len(array):
        return array if array.type == wanted else pa.nulls(len(array), wanted)
    if before.as_text or after.as_text:
        raise InexactError(f"{before.type} cannot become {after.type}")
    return _exactly(array, before.type, after.type, wanted)


def _exactly(array: pa.Array, before: PgType, after: PgType, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    if before.kind == after.kind == "array":
        return _lists(array, before, after, wanted)
    if before.kind == after.kind == "composite":
        return _composites(array, before, after, wanted)
    if (_family(before), _family(after)) not in CONVERSIONS:
        raise InexactError(f"{before} cannot become {after}")
    try:
        return _cast(array, wanted)
    except pa.ArrowException:
        # Its text may hold the value.
        raise InexactError(f"a value of {before} has no equal in {after}") from None


def _family(type_: PgType) -> str:
    known = type_.kind == "base" and (type_.schema == "pg_catalog" or type_.extension == type_.name)
    return _FAMILY.get(type_.name, "") if known else ""


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Arrow's own cast refuses what overflows and digits that would be lost, but not everything."""
    given = array.type
    if pa.types.is_string(wanted):
        return _text(array)
    if pa.types.is_string(given):
        return array.cast(wanted)
    if pa.types.is_integer(given) and pa.types.is_decimal(wanted):
        # Arrow wants room for the largest integer, whatever the values are.
        array = array.cast(pa.decimal256(INT64_DIGITS + wanted.scale, wanted.scale))
    made = array.cast(wanted)
    if pa.types.is_decimal(array.type):
        return made
    back = made.cast(array.type)
    same = pc.equal(array, back)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(array), pc.is_nan(back)))
    if pc.all(same).as_py() is False:
        raise InexactError("a value would be rounded")
    return made


def _text(array: pa.Array) -> pa.Array:
    """As Postgres prints them."""
    if pa.types.is_decimal(array.type):
        quoted = pc.utf8_slice_codeunits(json_values(array), 1, -1)
        return pc.if_else(array.is_valid(), quoted, pa.scalar(None, pa.string()))
    if pa.types.is_floating(array.type):
        raise InexactError("a float is no exact numeric")
    return array.cast(pa.string())


def _lists(array: pa.ListArray, before: PgType, after: PgType, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_list(array.type) or not pa.types.is_list(wanted):
        raise InexactError("the arrays have another depth")
    totals, inner = list_parts(array)
    if pa.types.is_list(inner.type) or pa.types.is_list(wanted.value_type):
        values = _lists(inner, before, after, wanted.value_type)
    else:
        assert before.element is not None and after.element is not None
        values = _exactly(inner, before.element, after.element, wanted.value_type)
    valid = bitmap(array.is_valid().to_numpy(zero_copy_only=False))
    return list_array(wanted, valid, totals, values)


def _composites(array: pa.StructArray, before: PgType, after: PgType, wanted: pa.DataType) -> pa.Array:
    """By the attributes' names: they have numbers too, but a type's description does not keep them."""
    then = {part.name: (part.type, column) for part, column in zip(before.fields, array.flatten(), strict=True)}
    names = {part.name for part in after.fields}
    if not (then.keys() <= names or names <= then.keys()):
        raise InexactError("an attribute may have been renamed")
    columns = []
    for part, field in zip(after.fields, wanted, strict=True):
        if part.name in then:
            columns.append(_exactly(then[part.name][1], then[part.name][0], part.type, field.type))
        else:
            columns.append(pa.nulls(len(array), field.type))
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())
