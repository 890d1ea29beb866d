"""float8 as Postgres prints it: the shortest digits that read back as the same float.

The digits come from Schubfach (R. Giulietti, «The Schubfach way to render doubles», 2020): scale the float
and both ends of its rounding interval by a power of ten to integers; take the shortest decimal in between.
Postgres leaves the ends themselves out, so that its text does not depend on how a reader rounds ties
(common/d2s.c): 1e23 is 9.999999999999999e+22, where Python, Java and Arrow print 1e+23. So no library's
formatter serves here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from walrelay.decode.rendered import MINUS, PLUS, POINT, ZERO, put_padded
from walrelay.wire.kernel import kernel

FLOAT_ROOM = 24
"""The longest text of a float8: -1.7976931348623157e+308, or -0.00012345678901234567."""

SMALLEST_POWER, LARGEST_POWER = -292, 324
_LOWER_E = ord("e")
_U32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_ONE = np.uint64(1)
_TEN = np.uint64(10)
_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN_BIT = np.uint64(1 << 52)
_EXPONENT = np.uint64(0x7FF)
_NAN = np.frombuffer(b"NaN", dtype=np.uint8)
_INFINITY = np.frombuffer(b"Infinity", dtype=np.uint8)


def _leading_128_bits(power: int) -> int:
    """The first 128 bits of 10^power, rounded up."""
    if power < 0:
        divisor: int = 10**-power
        return -(-(1 << (127 + divisor.bit_length())) // divisor)
    value: int = 10**power
    excess = value.bit_length() - 128
    return value << -excess if excess <= 0 else -(-value >> excess)


_POWERS = [_leading_128_bits(power) for power in range(SMALLEST_POWER, LARGEST_POWER + 1)]
_POWERS_HIGH = np.array([power >> 64 for power in _POWERS], dtype=np.uint64)
_POWERS_LOW = np.array([power & ((1 << 64) - 1) for power in _POWERS], dtype=np.uint64)


@kernel
def product_128(a: Any, b: Any) -> Any:
    """(high, low) halves of the product of two unsigned 64-bit integers."""
    low_low = (a & _U32) * (b & _U32)
    low_high = (a & _U32) * (b >> _32)
    high_low = (a >> _32) * (b & _U32)
    middle = (low_low >> _32) + (low_high & _U32) + (high_low & _U32)
    high = (a >> _32) * (b >> _32) + (low_high >> _32) + (high_low >> _32) + (middle >> _32)
    return high, a * b


@kernel
def scaled(power: Any, value: Any) -> Any:
    """value · 10^power · 2^-(a fitting shift), rounded to odd: a set lowest bit says that bits were cut."""
    carried, _ = product_128(_POWERS_LOW[power - SMALLEST_POWER], value)
    high, low = product_128(_POWERS_HIGH[power - SMALLEST_POWER], value)
    low += carried
    if low < carried:
        high += _ONE
    if low > _ONE:
        high |= _ONE
    return high


@kernel
def shortest(fraction: Any, exponent: Any) -> Any:
    """(digits, power of ten) of a finite positive float from its bits; the digits may end in zeros."""
    closer_below = fraction == 0 and exponent > 1
    mantissa, binary = fraction, -1074
    if exponent != 0:
        mantissa, binary = fraction | _HIDDEN_BIT, exponent - 1075
    # floor(log10(2^binary)), or of 3/4 · 2^binary where the next float below is only half as far away.
    power = (binary * 1262611 - (524031 if closer_below else 0)) >> 22
    shift = np.uint64(binary + ((-power * 1741647) >> 19) + 1)
    four = np.uint64(4) * mantissa
    below = scaled(-power, (four - np.uint64(1 if closer_below else 2)) << shift) + _ONE
    value = scaled(-power, four << shift)
    above = scaled(-power, (four + np.uint64(2)) << shift) - _ONE
    digits = value // np.uint64(4)
    if digits >= _TEN:
        fewer = digits // _TEN
        down_fits = below <= np.uint64(40) * fewer
        up_fits = np.uint64(40) * fewer + np.uint64(40) <= above
        if down_fits != up_fits:
            return fewer + np.uint64(1 if up_fits else 0), power + 1
    down_fits = below <= np.uint64(4) * digits
    up_fits = np.uint64(4) * digits + np.uint64(4) <= above
    if down_fits != up_fits:
        return digits + np.uint64(1 if up_fits else 0), power
    middle = np.uint64(4) * digits + np.uint64(2)
    up_is_nearer = value > middle or (value == middle and (digits & _ONE) == _ONE)
    return digits + np.uint64(1 if up_is_nearer else 0), power


@kernel
def put_digits(out: Any, at: Any, digits: Any, count: Any, whole: Any) -> Any:
    """Write `count` digits, with a point after the first `whole` unless none or all are."""
    pointed = 0 < whole < count
    end = at + count + (1 if pointed else 0)
    to = end - 1
    for k in range(count - 1, -1, -1):
        out[to] = ZERO + np.int64(digits % _TEN)
        digits //= _TEN
        to -= 1
        if pointed and k == whole:
            out[to] = POINT
            to -= 1
    return end


@kernel
def put_word(out: Any, at: Any, word: Any) -> Any:
    for k in range(word.size):
        out[at + k] = word[k]
    return at + word.size


@kernel
def put_finite(out: Any, at: Any, digits: Any, power: Any) -> Any:
    """Write digits · 10^power as Postgres does: plain from 1e-04 up to below 1e+15, else with an exponent."""
    while digits % _TEN == 0:
        digits //= _TEN
        power += 1
    count = 1
    rest = digits
    while rest >= _TEN:
        rest //= _TEN
        count += 1
    whole = count + power
    if whole < -3 or whole > 15:
        at = put_digits(out, at, digits, count, 1)
        out[at] = _LOWER_E
        out[at + 1] = MINUS if whole < 1 else PLUS
        size = abs(whole - 1)
        return put_padded(out, at + 2, size, 3 if size >= 100 else 2)
    if whole <= 0:
        out[at] = ZERO
        out[at + 1] = POINT
        at += 2
        for _ in range(-whole):
            out[at] = ZERO
            at += 1
        return put_digits(out, at, digits, count, count)
    at = put_digits(out, at, digits, count, whole)
    for _ in range(whole - count):
        out[at] = ZERO
        at += 1
    return at


@kernel
def put_float(out: Any, at: Any, bits: Any) -> Any:
    """Write the float8 of these bits (signed or not); needs `FLOAT_ROOM`; returns the place behind it."""
    pattern = np.uint64(bits)
    fraction = pattern & _FRACTION
    exponent = np.int64((pattern >> np.uint64(52)) & _EXPONENT)
    if exponent == 0x7FF and fraction != 0:
        return put_word(out, at, _NAN)
    if pattern >> np.uint64(63) != 0:
        out[at] = MINUS
        at += 1
    if exponent == 0x7FF:
        return put_word(out, at, _INFINITY)
    if exponent == 0 and fraction == 0:
        out[at] = ZERO
        return at + 1
    digits, power = shortest(fraction, exponent)
    return put_finite(out, at, digits, power)


@kernel
def put_floats(bits: Any, out: Any, offsets: Any) -> None:
    at = 0
    for i in range(bits.size):
        offsets[i] = at
        at = put_float(out, at, bits[i])
    offsets[bits.size] = at


def float_text(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The texts of all values one after the other, and the n + 1 offsets between them."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    out = np.empty(len(bits) * FLOAT_ROOM, dtype=np.uint8)
    offsets = np.empty(len(bits) + 1, dtype=np.int64)
    put_floats(bits, out, offsets)
    return out[: offsets[-1]], offsets
