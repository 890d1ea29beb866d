"""Arrow columns of the `TEXT` target as JSON text, a column at a time.

JSON has no exact decimals, bytes or infinity: decimals are text in fixed notation, bytes are `\\x…`, NaN and ±Infinity
are text. All else is as Python's json.dumps(ensure_ascii=False, separators=(",", ":")) writes it; a float4 is written
as the float8 of the same value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.float_text import put_digits, scaled
from walrelay.decode.rendered import COMMA, MINUS, PLUS, POINT, ZERO, put_hex_byte, put_padded, put_unsigned
from walrelay.decode.text import MAX_COLUMN_BYTES
from walrelay.errors import BadBytesError
from walrelay.wire.kernel import kernel

Array = npt.NDArray[Any]

INTEGER_ROOM = 20
FLOAT_ROOM = 26
DECIMAL_ROOM = 44
"""Characters for the longest value of the kind, quotes included: -0. and 38 digits for a decimal."""

_QUOTE, _BACKSLASH, _LOWER_E, _LOWER_U, _LOWER_X = (ord(c) for c in '"\\eux')
_SQUARE_OPEN, _SQUARE_CLOSE, _CURLY_OPEN, _CURLY_CLOSE = (ord(c) for c in "[]{}")
_SPACE = 32
_ESCAPES = np.zeros(256, np.uint8)
"""What follows the backslash, 0 for a byte that stands for itself."""
_ESCAPES[:_SPACE] = _LOWER_U
for _byte, _letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _ESCAPES[_byte] = _letter

_U32, _32, _ONE, _FOUR, _TEN = (np.uint64(n) for n in (0xFFFFFFFF, 32, 1, 4, 10))
_63, _52 = np.uint64(63), np.uint64(52)
_BILLION = np.uint64(1_000_000_000)
_HIDDEN_BIT = np.uint64(1 << 52)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts one after the other, and the n + 1 offsets between them."""

    out: Array
    offsets: Array


# ------------------------------------------------------------------------------------------------------ kernels: leaves


@kernel
def put(out: Any, at: Any, word: Any) -> Any:
    for k in range(len(word)):
        out[at + k] = word[k]
    return at + len(word)


@kernel
def put_part(out: Any, at: Any, data: Any, begin: Any, end: Any) -> Any:
    """Copy a part of `data`; through views of a known beginning, which the compiler turns into wide moves."""
    size = end - begin
    source, text = data[begin:end], out[at : at + size]
    for k in range(size):
        text[k] = source[k]
    return at + size


@kernel
def write_booleans(values: Any, valid: Any, out: Any, offsets: Any) -> None:
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
        elif values[i]:
            at = put(out, at, b"true")
        else:
            at = put(out, at, b"false")
    offsets[valid.size] = at


@kernel
def write_integers(values: Any, valid: Any, out: Any, offsets: Any) -> None:
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        size = np.uint64(values[i])
        if values[i] < 0:
            out[at] = MINUS
            at += 1
            size = ~size + _ONE
        at = put_unsigned(out, at, size)
    offsets[valid.size] = at


@kernel
def shortest_closed(fraction: Any, exponent: Any) -> Any:
    """Like `float_text.shortest`, for readers that round ties to even, as Python and all others today do.

    The ends of the rounding interval then belong to it where the mantissa is even: 1e23 is 1e+23.
    """
    closer_below = fraction == 0 and exponent > 1
    mantissa, binary = fraction, -1074
    if exponent != 0:
        mantissa, binary = fraction | _HIDDEN_BIT, exponent - 1075
    power = (binary * 1262611 - (524031 if closer_below else 0)) >> 22
    shift = np.uint64(binary + ((-power * 1741647) >> 19) + 1)
    four, odd = _FOUR * mantissa, mantissa & _ONE
    below = scaled(-power, (four - np.uint64(1 if closer_below else 2)) << shift) + odd
    value = scaled(-power, four << shift)
    above = scaled(-power, (four + np.uint64(2)) << shift) - odd
    digits = value // _FOUR
    if digits >= _TEN:
        fewer = digits // _TEN
        down_fits = below <= np.uint64(40) * fewer
        up_fits = np.uint64(40) * fewer + np.uint64(40) <= above
        if down_fits != up_fits:
            return fewer + np.uint64(1 if up_fits else 0), power + 1
    down_fits = below <= _FOUR * digits
    up_fits = _FOUR * digits + _FOUR <= above
    if down_fits != up_fits:
        return digits + np.uint64(1 if up_fits else 0), power
    middle = _FOUR * digits + np.uint64(2)
    up_is_nearer = value > middle or (value == middle and (digits & _ONE) == _ONE)
    return digits + np.uint64(1 if up_is_nearer else 0), power


@kernel
def put_repr(out: Any, at: Any, digits: Any, power: Any) -> Any:
    """Write digits · 10^power as Python's repr: plain from 1e-04 up to below 1e+16, always with a point or exponent."""
    while digits % _TEN == 0:
        digits //= _TEN
        power += 1
    count = 1
    rest = digits
    while rest >= _TEN:
        rest //= _TEN
        count += 1
    whole = count + power
    if whole < -3 or whole > 16:
        at = put_digits(out, at, digits, count, 1)
        out[at] = _LOWER_E
        out[at + 1] = MINUS if whole < 1 else PLUS
        size = abs(whole - 1)
        return put_padded(out, at + 2, size, 3 if size >= 100 else 2)
    if whole <= 0:
        at = put(out, at, b"0.")
        for _ in range(-whole):
            out[at] = ZERO
            at += 1
        return put_digits(out, at, digits, count, count)
    at = put_digits(out, at, digits, count, whole)
    if whole < count:
        return at
    for _ in range(whole - count):
        out[at] = ZERO
        at += 1
    return put(out, at, b".0")


@kernel
def write_floats(bits: Any, valid: Any, out: Any, offsets: Any) -> None:
    """From the bits of float8, unsigned."""
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        fraction = bits[i] & (_HIDDEN_BIT - _ONE)
        exponent = np.int64((bits[i] >> _52) & np.uint64(0x7FF))
        negative = bits[i] >> _63 != 0
        if exponent == 0x7FF:
            if fraction != 0:
                at = put(out, at, b'"NaN"')
            elif negative:
                at = put(out, at, b'"-Infinity"')
            else:
                at = put(out, at, b'"Infinity"')
            continue
        if negative:
            out[at] = MINUS
            at += 1
        if exponent == 0 and fraction == 0:
            at = put(out, at, b"0.0")
        else:
            digits, power = shortest_closed(fraction, exponent)
            at = put_repr(out, at, digits, power)
    offsets[valid.size] = at


@kernel
def split_billion(high: Any, low: Any) -> Any:
    """(high, low, rest) of an unsigned 128-bit integer divided by 10^9, 32 bits at a time."""
    first, rest = (high >> _32) // _BILLION, (high >> _32) % _BILLION
    part = (rest << _32) | (high & _U32)
    second, rest = part // _BILLION, part % _BILLION
    part = (rest << _32) | (low >> _32)
    third, rest = part // _BILLION, part % _BILLION
    part = (rest << _32) | (low & _U32)
    return (first << _32) | second, (third << _32) | (part // _BILLION), part % _BILLION


@kernel
def write_decimals(words: Any, scale: int, valid: Any, out: Any, offsets: Any) -> None:
    """From pairs of unsigned 64-bit words, the low one first, two's complement."""
    digits = np.empty(48, np.uint8)
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        low, high = words[2 * i], words[2 * i + 1]
        out[at] = _QUOTE
        at += 1
        if high >> _63 != 0:
            out[at] = MINUS
            at += 1
            low, high = ~low + _ONE, ~high + np.uint64(1 if low == 0 else 0)
        first = digits.size
        while high != 0:
            high, low, rest = split_billion(high, low)
            first -= 9
            put_padded(digits, first, np.int64(rest), 9)
        while low != 0 or first >= digits.size - scale:
            first -= 1
            digits[first] = ZERO + np.int64(low % _TEN)
            low //= _TEN
        for k in range(first, digits.size):
            if k == digits.size - scale:
                out[at] = POINT
                at += 1
            out[at] = digits[k]
            at += 1
        out[at] = _QUOTE
        at += 1
    offsets[valid.size] = at


@kernel
def escapes_room(data: Any, begin: int, end: int) -> int:
    """At most so many characters more than bytes; 0 when every byte stands for itself."""
    part = data[begin:end]
    low, marks = 0, 0
    for k in range(part.size):
        low += part[k] < _SPACE
        marks += (part[k] == _QUOTE) | (part[k] == _BACKSLASH)
    return 5 * low + marks


@kernel
def put_escaped(out: Any, at: Any, data: Any, begin: Any, end: Any) -> Any:
    for k in range(begin, end):
        byte = data[k]
        letter = _ESCAPES[byte]
        if letter == 0:
            out[at] = byte
            at += 1
            continue
        out[at] = _BACKSLASH
        out[at + 1] = letter
        at += 2
        if letter == _LOWER_U:
            at = put_hex_byte(out, put(out, at, b"00"), byte)
    return at


@kernel
def write_strings(data: Any, starts: Any, plain: bool, valid: Any, out: Any, offsets: Any) -> None:
    """`plain` when there is nothing to escape."""
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        begin, end = starts[i], starts[i + 1]
        out[at] = _QUOTE
        at += 1
        at = put_part(out, at, data, begin, end) if plain else put_escaped(out, at, data, begin, end)
        out[at] = _QUOTE
        at += 1
    offsets[valid.size] = at


@kernel
def write_bytes(data: Any, starts: Any, valid: Any, out: Any, offsets: Any) -> None:
    at = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        at = put(out, at, b'"\\\\x')
        for k in range(starts[i], starts[i + 1]):
            at = put_hex_byte(out, at, data[k])
        out[at] = _QUOTE
        at += 1
    offsets[valid.size] = at


# ----------------------------------------------------------------------------------------------- kernels: nested values


@kernel
def write_lists(texts: Any, ends: Any, totals: Any, valid: Any, out: Any, offsets: Any) -> None:
    """`totals` elements each, whose texts lie one after the other with `ends` between them."""
    at = 0
    element = 0
    for i in range(valid.size):
        offsets[i] = at
        if not valid[i]:
            at = put(out, at, b"null")
            continue
        out[at] = _SQUARE_OPEN
        at += 1
        for j in range(totals[i]):
            if j > 0:
                out[at] = COMMA
                at += 1
            at = put_part(out, at, texts, ends[element], ends[element + 1])
            element += 1
        out[at] = _SQUARE_CLOSE
        at += 1
    offsets[valid.size] = at


@kernel
def put_member(head: Any, texts: Any, ends: Any, valid: Any, places: Any, out: Any) -> None:
    """Write one member of every object, `"name":` and value, and move the places behind it."""
    for i in range(valid.size):
        if not valid[i]:
            continue
        at = put_part(out, places[i], head, 0, head.size)
        places[i] = put_part(out, at, texts, ends[i], ends[i + 1])


@kernel
def put_rest(tail: Any, valid: Any, places: Any, out: Any) -> None:
    """Write what ends an object, or that there is none."""
    for i in range(valid.size):
        if valid[i]:
            put(out, places[i], tail)
        else:
            put(out, places[i], b"null")


# -------------------------------------------------------------------------------------------------------------- columns


def json_values(array: pa.Array) -> pa.Array:
    """The JSON text of every value, as a string array without NULL: a NULL is the text `null`."""
    texts = _texts(array)
    if texts.offsets[-1] > MAX_COLUMN_BYTES:
        raise BadBytesError("JSON text of one chunk exceeds 2 GiB", position=0)
    offsets = pa.py_buffer(texts.offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.string(), len(array), [None, offsets, pa.py_buffer(texts.out)])


def json_objects(array: pa.StructArray) -> pa.Array:
    """The JSON object of every struct, members in the order of its fields; a NULL struct is the text `null`."""
    assert pa.types.is_struct(array.type), f"{array.type} is not a struct"
    return json_values(array)


def _texts(array: pa.Array) -> Texts:
    for is_kind, texts_of in _KINDS:
        if is_kind(array.type):
            return texts_of(array)
    raise TypeError(f"the text target has no {array.type}")


def _written(room: int, write: Any, *inputs: Any) -> Texts:
    """Run a kernel whose last inputs are valid, out and offsets."""
    n = len(inputs[-1])
    out, offsets = np.empty(room, np.uint8), np.empty(n + 1, np.int64)
    write(*inputs, out, offsets)
    return Texts(out[: offsets[n]], offsets)


def _memory(buffer: pa.Buffer | None, dtype: npt.DTypeLike, begin: int, count: int) -> Array:
    """A part of a buffer, always read-only, so that kernels are compiled for one kind of memory."""
    if buffer is None or count == 0:
        view: Array = np.empty(0, dtype)
    else:
        view = np.frombuffer(buffer, dtype, count=count, offset=begin * np.dtype(dtype).itemsize)
    view.flags.writeable = False
    return view


def _valid(array: pa.Array) -> Array:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    # A copy, so that it is always memory that may be written to, as above.
    return np.array(array.is_valid().to_numpy(zero_copy_only=False))


def _booleans(array: pa.Array) -> Texts:
    values = np.array(pc.fill_null(array, False).to_numpy(zero_copy_only=False))
    return _written(len(array) * 5, write_booleans, values, _valid(array))


def _integers(array: pa.Array) -> Texts:
    wide = array.cast(pa.int64())
    values = _memory(wide.buffers()[1], np.int64, wide.offset, len(wide))
    return _written(len(array) * INTEGER_ROOM, write_integers, values, _valid(array))


def _floats(array: pa.Array) -> Texts:
    wide = array.cast(pa.float64())
    bits = _memory(wide.buffers()[1], np.uint64, wide.offset, len(wide))
    return _written(len(array) * FLOAT_ROOM, write_floats, bits, _valid(array))


def _decimals(array: pa.Array) -> Texts:
    words = _memory(array.buffers()[1], np.uint64, 2 * array.offset, 2 * len(array))
    return _written(len(array) * DECIMAL_ROOM, write_decimals, words, array.type.scale, _valid(array))


def _values(array: pa.Array) -> tuple[Array, Array, int]:
    """(all bytes, n + 1 offsets into them, how many bytes are the values')."""
    _, offsets, data = array.buffers()
    starts = _memory(offsets, np.int32, array.offset, len(array) + 1)
    return _memory(data, np.uint8, 0, data.size if data else 0), starts, int(starts[-1]) - int(starts[0])


def _strings(array: pa.Array) -> Texts:
    if len(array) == 0:
        return _nothing(array)
    data, starts, size = _values(array)
    more = escapes_room(data, int(starts[0]), int(starts[-1]))
    return _written(size + more + 6 * len(array), write_strings, data, starts, more == 0, _valid(array))


def _bytes(array: pa.Array) -> Texts:
    if len(array) == 0:
        return _nothing(array)
    data, starts, size = _values(array)
    return _written(2 * size + 5 * len(array), write_bytes, data, starts, _valid(array))


def _lists(array: pa.ListArray) -> Texts:
    elements = _texts(array.flatten())
    totals = np.array(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), np.int64)
    room = len(elements.out) + len(elements.offsets) + 4 * len(array)
    return _written(room, write_lists, elements.out, elements.offsets, totals, _valid(array))


def _structs(array: pa.StructArray) -> Texts:
    valid = _valid(array)
    names = [json.dumps(field.name, ensure_ascii=False) for field in array.type]
    heads = [np.frombuffer(bytearray(f"{',' if k else '{'}{name}:".encode()), np.uint8) for k, name in enumerate(names)]
    tail = np.frombuffer(bytearray(b"}" if heads else b"{}"), np.uint8)
    members = [_texts(child) for child in array.flatten()]
    sizes = np.full(len(array), sum(map(len, heads)) + len(tail), np.int64)
    for member in members:
        sizes += np.diff(member.offsets)
    sizes[~valid] = len(b"null")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out, places = np.empty(offsets[-1], np.uint8), offsets[:-1].copy()
    for head, member in zip(heads, members, strict=True):
        put_member(head, member.out, member.offsets, valid, places, out)
    put_rest(tail, valid, places, out)
    return Texts(out, offsets)


def _nothing(array: pa.Array) -> Texts:
    """Of a column of NULLs, or of no values at all."""
    n = len(array)
    return Texts(np.frombuffer(bytearray(b"null" * n), np.uint8), np.arange(n + 1, dtype=np.int64) * 4)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Texts]], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal128, _decimals),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _bytes),
    (pa.types.is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_dictionary, lambda array: _texts(array.dictionary_decode())),
    (pa.types.is_null, _nothing),
)
