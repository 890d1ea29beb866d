"""Of which type a column is that holds the same value everywhere."""

from __future__ import annotations

import pyarrow as pa

from walrelay.decode.base import ARROW
from walrelay.decode.table import column_decoder
from walrelay.model.schema import Column, PgType

Constant = str | int | float | bool
_TYPES: dict[type, PgType] = {
    bool: PgType(16, "bool"),
    int: PgType(20, "int8"),
    float: PgType(701, "float8"),
    str: PgType(25, "text"),
}


def constant_type(column: Column, value: Constant) -> PgType:
    """The column's own where it can hold the value exactly; else the value's."""
    kind = column_decoder(column, ARROW).arrow_type
    own = _TYPES[type(value)]
    if column.as_text or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return own
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    fits = {
        bool: pa.types.is_boolean(kind),
        int: is_number,
        float: pa.types.is_floating(kind),
        str: pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind),
    }
    if not fits[type(value)]:
        return own
    try:
        constant_of(value, kind)
    except pa.ArrowException:
        return own
    return column.type


def constant_of(value: Constant, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        return pa.scalar(value).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(value, pa.string()).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
