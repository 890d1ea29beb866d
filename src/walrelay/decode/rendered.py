"""Types that arrive as structure and leave as the text Postgres prints: what all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from walrelay.decode.base import Fields, Tally, bad_field, bitmap
from walrelay.decode.text import MAX_COLUMN_BYTES, first_bad_utf8
from walrelay.errors import BadBytesError
from walrelay.wire.kernel import OK, kernel

BAD = -1
"""What the writer of one value returns instead of the place behind its text when the bytes are wrong."""

ZERO, COLON, COMMA, POINT, SLASH = ord("0"), ord(":"), ord(","), ord("."), ord("/")
PLUS, MINUS = ord("+"), ord("-")
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


@kernel
def put_unsigned(out: Any, at: Any, value: Any) -> Any:
    """Write `value` (0 or more) in decimal; returns the place behind it."""
    rest = np.uint64(value)
    digits = 1
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        digits += 1
    rest = np.uint64(value)
    for k in range(digits - 1, -1, -1):
        out[at + k] = ZERO + np.int64(rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + digits


@kernel
def put_padded(out: Any, at: Any, value: Any, width: Any) -> Any:
    """Write the last `width` decimal digits of `value`, with leading zeros; returns the place behind them."""
    for k in range(width - 1, -1, -1):
        out[at + k] = ZERO + value % 10
        value //= 10
    return at + width


@kernel
def hex_digit(value: Any) -> Any:
    """The lower-case digit for 0 to 15."""
    return _HEX_DIGITS[value]


@kernel
def put_hex_byte(out: Any, at: Any, value: Any) -> Any:
    """Write two lower-case hexadecimal digits; returns the place behind them."""
    out[at] = hex_digit(np.int64(value) >> 4)
    out[at + 1] = hex_digit(np.int64(value) & 15)
    return at + 2


@dataclass(frozen=True)
class RenderedDecoder:
    """Text written by `render(buf, starts, lengths, out, offsets, valid, *options) -> bad row or OK`.

    `out` has room for `per_value` characters a value plus `per_byte` for each byte received; a kernel whose
    text is not bounded by that has its own `measure(buf, starts, lengths) -> (bad row or OK, total)`.
    `render` fills all n + 1 offsets. With `holds_text` the values carry text of users, which is checked to
    be UTF-8; all others render to plain ASCII.
    """

    what: str
    render: Any
    per_value: int = 0
    per_byte: int = 0
    measure: Any = None
    options: tuple[int, ...] = ()
    holds_text: bool = False
    arrow_type: pa.DataType = pa.string()

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        if self.measure is not None:
            bad, room = self.measure(fields.buf, fields.starts, fields.lengths)
            if bad != OK:
                raise bad_field(fields, bad, f"malformed {self.what}")
        else:
            received = int(np.maximum(fields.lengths, 0).sum(dtype=np.int64))
            room = n * self.per_value + received * self.per_byte
        if room > MAX_COLUMN_BYTES * 4:
            raise BadBytesError(f"{self.what} text of one chunk is too large", position=int(fields.starts[0]))
        out = np.empty(room, dtype=np.uint8)
        wide_offsets = np.empty(n + 1, dtype=np.int64)
        valid = np.empty(n, dtype=np.uint8)
        bad = self.render(fields.buf, fields.starts, fields.lengths, out, wide_offsets, valid, *self.options)
        if bad != OK:
            raise bad_field(fields, bad, f"malformed {self.what}")
        if wide_offsets[n] > MAX_COLUMN_BYTES:
            raise BadBytesError(f"{self.what} text of one chunk exceeds 2 GiB", position=int(fields.starts[0]))
        out, offsets = out[: wide_offsets[n]], wide_offsets.astype(np.int32)
        if self.holds_text:
            bad = first_bad_utf8(out, offsets)
            if bad != OK:
                raise bad_field(fields, bad, f"text in {self.what} is not valid UTF-8")
        return pa.Array.from_buffers(self.arrow_type, n, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)])
