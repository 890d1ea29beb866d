"""What becomes of a column's values, as Arrow: hidden by a hash, in part, or wholly."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.json_text import json_objects
from walrelay.decode.sha256 import sha256_hex
from walrelay.model.table_options import Hash, KeepLast, Mask, WithConstant, WithNull
from walrelay.shaping.constants import constant_of


def hidden(values: pa.Array, how: Hash | Mask, kind: pa.DataType) -> pa.Array:
    """The values, decoded for `TEXT` where `how` wants their text, as an array of `kind`."""
    match how:
        case Hash(salt=salt):
            return sha256_hex(words(values), salt.encode()).cast(kind)
        case KeepLast(count):
            return _last(words(values), count).cast(kind)
        case WithNull():
            return pa.nulls(len(values), kind)
        case WithConstant(value):
            return pc.if_else(values.is_valid(), constant_of(value, kind), pa.scalar(None, kind))
        case _:
            assert_never(how)


def words(values: pa.Array) -> pa.Array:
    """Values as text, or bytes. Numbers as digits, what has parts as JSON."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return values
    if not pa.types.is_nested(kind):
        return values.cast(pa.string())
    text = json_objects(pa.StructArray.from_arrays([values], ["value"]))
    return pc.if_else(values.is_valid(), text, pa.scalar(None, text.type))


def _last(text: pa.Array, count: int) -> pa.Array:
    """With an asterisk for each character but the last ones; of a text of no more than these nothing stays."""
    length = pc.utf8_length(text)
    is_longer = pc.greater(length, count)
    masked = pc.if_else(is_longer, pc.subtract(length, count), length)
    tail = pc.if_else(is_longer, pc.utf8_slice_codeunits(text, start=-count), "")
    return pc.binary_join_element_wise(pc.binary_repeat("*", masked), tail, "")
