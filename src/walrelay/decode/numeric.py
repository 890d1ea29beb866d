"""numeric and money: exact, as decimals where a precision is declared, else as the text Postgres prints.

On the wire a numeric is four 16-bit integers (digit count, weight of the first digit, sign, display scale) and then
base-10000 digits. The count is unsigned: 131072 digits before the point are 32768 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from walrelay.decode.base import Fields, Tally, bad_field, bitmap
from walrelay.decode.fixed import fixed_array, read_8
from walrelay.decode.rendered import RenderedDecoder
from walrelay.model.special import Special
from walrelay.wire.kernel import OK, be16, kernel

NEGATIVE, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY = 0x4000, 0xC000, 0xD000, 0xF000
MAX_PRECISION = 38
MONEY_DIGITS = 19
_U32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@kernel
def multiply_add(high: Any, low: Any, factor: Any, addend: Any) -> Any:
    """(high, low) · factor + addend over 128 unsigned bits; the third result is 1 when it does not fit into 127."""
    a = (low & _U32) * factor + addend
    b = (low >> _32) * factor + (a >> _32)
    c = (high & _U32) * factor + (b >> _32)
    d = (high >> _32) * factor + (c >> _32)
    return (d << _32) | (c & _U32), (b << _32) | (a & _U32), d >> np.uint64(31)


@kernel
def header_is_bad(buf: Any, start: int, length: int) -> bool:
    """Whether the bytes cannot be a numeric: count, sign and digits are checked, so that readers may trust them."""
    if length < 8:
        return True
    digits = np.int64(be16(buf, start)) & 0xFFFF
    if length != 8 + 2 * digits:
        return True
    sign = np.int64(be16(buf, start + 4)) & 0xFFFF
    if sign not in (0, NEGATIVE, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY):
        return True
    scale = np.int64(be16(buf, start + 6))
    if scale < 0 or scale > 16_383:
        return True
    for k in range(digits):
        digit = be16(buf, start + 8 + 2 * k)
        if digit < 0 or digit > 9_999:
            return True
    return False


@kernel
def scaled_value(buf: Any, start: Any, scale: Any) -> Any:
    """(high, low, fits): the numeric's digits · 10^scale over 128 bits; it does not fit unless it does exactly."""
    high, low = np.uint64(0), np.uint64(0)
    # The power of ten that the last digit taken stands for; each digit is worth four.
    exponent = 4 * (np.int64(be16(buf, start + 2)) + 1) + scale
    for k in range(np.int64(be16(buf, start)) & 0xFFFF):
        digit, factor = np.uint64(be16(buf, start + 8 + 2 * k)), np.uint64(10_000)
        exponent -= 4
        if exponent <= -4:
            if digit != 0:
                return high, low, False
            continue
        for _ in range(-exponent):
            if digit % np.uint64(10) != 0:
                return high, low, False
            digit //= np.uint64(10)
            factor //= np.uint64(10)
        high, low, over = multiply_add(high, low, factor, digit)
        if over:
            return high, low, False
    if (high | low) != 0:
        for _ in range(exponent):
            high, low, over = multiply_add(high, low, np.uint64(10), np.uint64(0))
            if over:
                return high, low, False
    return high, low, True


@kernel
def read_decimals(
    buf: Any, starts: Any, lengths: Any, scale: int, limit_high: Any, limit_low: Any, out: Any, valid: Any, nans: Any
) -> int:
    """value · 10^scale as a 128-bit integer, low half first. A value that does not fit exactly is a bad row."""
    for i in range(starts.size):
        out[2 * i] = 0
        out[2 * i + 1] = 0
        valid[i] = 0
        if lengths[i] < 0:
            continue
        if header_is_bad(buf, starts[i], lengths[i]):
            return i
        sign = np.int64(be16(buf, starts[i] + 4)) & 0xFFFF
        if sign == NAN:
            nans[0] += 1
            continue
        high, low, fits = scaled_value(buf, starts[i], scale)
        if sign > NAN or not fits or high > limit_high or (high == limit_high and low > limit_low):
            return i
        if sign == NEGATIVE:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == 0)
        valid[i] = 1
        out[2 * i] = low
        out[2 * i + 1] = high
    return OK


@kernel
def measure_numerics(buf: Any, starts: Any, lengths: Any) -> Any:
    """(bad row or OK, room for all texts)."""
    room = np.int64(0)
    for i in range(starts.size):
        if lengths[i] < 0:
            continue
        if header_is_bad(buf, starts[i], lengths[i]):
            return i, room
        weight = np.int64(be16(buf, starts[i] + 2))
        room += (weight + 1 if weight > 0 else 1) * 4 + np.int64(be16(buf, starts[i] + 6)) + 12
    return OK, room


@kernel
def put_ascii(out: Any, at: int, text: Any) -> int:
    for k in range(len(text)):
        out[at + k] = text[k]
    return at + len(text)


@kernel
def numeric_digit(buf: Any, start: Any, digits: Any, weight: Any, power: Any) -> Any:
    """The base-10000 digit of 10000^power, 0 where none was sent."""
    index = weight - power
    if index < 0 or index >= digits:
        return 0
    return be16(buf, start + 8 + 2 * index)


@kernel
def render_numerics(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    """The text as numeric_out writes it: no leading zeros, exactly `dscale` digits after the point."""
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        if lengths[i] < 0:
            valid[i] = 0
            continue
        valid[i] = 1
        start = starts[i]
        digits = np.int64(be16(buf, start)) & 0xFFFF
        weight = np.int64(be16(buf, start + 2))
        sign = np.int64(be16(buf, start + 4)) & 0xFFFF
        scale = np.int64(be16(buf, start + 6))
        if sign == NAN:
            at = put_ascii(out, at, b"NaN")
            continue
        if sign == POSITIVE_INFINITY:
            at = put_ascii(out, at, b"Infinity")
            continue
        if sign == NEGATIVE_INFINITY:
            at = put_ascii(out, at, b"-Infinity")
            continue
        if sign == NEGATIVE:
            out[at] = 45
            at += 1
        begun = False
        for power in range(weight, -1, -1):
            digit = numeric_digit(buf, start, digits, weight, power)
            divisor = 1000
            while divisor:
                one = digit // divisor % 10
                if begun or one or (power == 0 and divisor == 1):
                    out[at] = 48 + one
                    at += 1
                    begun = True
                divisor //= 10
        if weight < 0:
            out[at] = 48
            at += 1
        if scale > 0:
            out[at] = 46
            at += 1
            for k in range(scale):
                digit = numeric_digit(buf, start, digits, weight, -1 - k // 4)
                place = k % 4
                divisor = 1000 if place == 0 else 100 if place == 1 else 10 if place == 2 else 1
                out[at] = 48 + digit // divisor % 10
                at += 1
    offsets[starts.size] = at
    return OK


@dataclass(frozen=True)
class DecimalDecoder:
    """numeric(p, s) with p ≤ 38. NaN is the one value it can store that a decimal cannot hold."""

    precision: int
    scale: int

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out, valid, nans = np.empty(2 * n, np.uint64), np.empty(n, np.uint8), np.zeros(1, np.int64)
        limit = 10**self.precision - 1
        bad = read_decimals(
            fields.buf, fields.starts, fields.lengths, self.scale,
            np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1)), out, valid, nans,
        )  # fmt: skip
        if bad != OK:
            raise bad_field(fields, bad, f"not a numeric({self.precision},{self.scale})")
        tally.treat(Special.NUMERIC_NAN, int(nans[0]))
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


@dataclass(frozen=True)
class MoneyDecoder:
    """money: a 64-bit count of the smallest unit."""

    scale: int

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(MONEY_DIGITS, self.scale)

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        units, valid = np.empty(n, np.int64), np.empty(n, np.uint8)
        bad = read_8(fields.buf, fields.starts, fields.lengths, units, valid)
        if bad != OK:
            raise bad_field(fields, bad, "not a money value")
        out = np.empty((n, 2), np.int64)
        out[:, 0] = units
        out[:, 1] = units >> 63
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


def numeric_text() -> RenderedDecoder:
    """numeric of any precision, also NaN and ±Infinity, as Postgres prints it."""
    return RenderedDecoder("numeric", render_numerics, measure=measure_numerics)


def declared_decimal(modifier: int) -> tuple[int, int] | None:
    """(precision, scale) of the decimal that holds every numeric with this type modifier, or None when none does."""
    if modifier < 4:
        return None
    packed = modifier - 4
    precision = (packed >> 16) & 0xFFFF
    scale = packed & 0x7FF
    if scale >= 1024:
        # Since Postgres 15 a scale may be negative: 11 bits, two's complement.
        scale -= 2048
    # numeric(3,-2) holds 99900, numeric(3,5) holds 0.00999: a decimal needs room for the zeros.
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return (precision, scale) if precision <= MAX_PRECISION else None
