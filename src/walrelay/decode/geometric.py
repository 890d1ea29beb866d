"""Geometric types: coordinates are float8, printed as Postgres prints them."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.float_text import put_float
from walrelay.decode.rendered import COMMA, RenderedDecoder
from walrelay.wire.kernel import OK, be32, be64, kernel

POINT, LSEG, BOX, LINE, CIRCLE = range(5)
PATH, POLYGON = range(2)

_ROUND_OPEN, _ROUND_CLOSE = ord("("), ord(")")
_SQUARE_OPEN, _SQUARE_CLOSE = ord("["), ord("]")
_CURLY_OPEN, _CURLY_CLOSE = ord("{"), ord("}")
_ANGLE_OPEN, _ANGLE_CLOSE = ord("<"), ord(">")

# A point's 16 bytes become two floats and at most «(,),»: 52 characters.
_PER_BYTE = 4


@kernel
def put_points(buf: Any, start: Any, count: Any, out: Any, at: Any) -> Any:
    """Write `count` points as (x,y),(x,y)."""
    for k in range(count):
        if k > 0:
            out[at] = COMMA
            at += 1
        out[at] = _ROUND_OPEN
        at = put_float(out, at + 1, be64(buf, start + 16 * k))
        out[at] = COMMA
        at = put_float(out, at + 1, be64(buf, start + 16 * k + 8))
        out[at] = _ROUND_CLOSE
        at += 1
    return at


@kernel
def put_line(buf: Any, start: Any, out: Any, at: Any) -> Any:
    """Write {A,B,C}."""
    out[at] = _CURLY_OPEN
    at = put_float(out, at + 1, be64(buf, start))
    out[at] = COMMA
    at = put_float(out, at + 1, be64(buf, start + 8))
    out[at] = COMMA
    at = put_float(out, at + 1, be64(buf, start + 16))
    out[at] = _CURLY_CLOSE
    return at + 1


@kernel
def put_shape(buf: Any, start: Any, out: Any, at: Any, shape: int) -> Any:
    """Write one value of a type of fixed width."""
    if shape == LINE:
        return put_line(buf, start, out, at)
    if shape == CIRCLE:
        out[at] = _ANGLE_OPEN
        at = put_points(buf, start, 1, out, at + 1)
        out[at] = COMMA
        at = put_float(out, at + 1, be64(buf, start + 16))
        out[at] = _ANGLE_CLOSE
        return at + 1
    if shape == LSEG:
        out[at] = _SQUARE_OPEN
        at = put_points(buf, start, 2, out, at + 1)
        out[at] = _SQUARE_CLOSE
        return at + 1
    return put_points(buf, start, 2 if shape == BOX else 1, out, at)


@kernel
def render_shapes(
    buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, shape: int, width: int
) -> int:
    """point, lseg, box, line, circle: `width` bytes of float8."""
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != width:
            return i
        at = put_shape(buf, starts[i], out, at, shape)
    offsets[starts.size] = at
    return OK


@kernel
def render_paths(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, shape: int) -> int:
    """path and polygon: for a path a byte, 1 when it is closed; then an int32 count, then the points."""
    at = 0
    header = 5 if shape == PATH else 4
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] < header or (shape == PATH and buf[starts[i]] > 1):
            return i
        count = np.int64(be32(buf, starts[i] + header - 4))
        if count <= 0 or lengths[i] != header + 16 * count:
            return i
        closed = shape == POLYGON or buf[starts[i]] == 1
        out[at] = _ROUND_OPEN if closed else _SQUARE_OPEN
        at = put_points(buf, starts[i] + header, count, out, at + 1)
        out[at] = _ROUND_CLOSE if closed else _SQUARE_CLOSE
        at += 1
    offsets[starts.size] = at
    return OK


def _of_width(what: str, shape: int, width: int) -> RenderedDecoder:
    return RenderedDecoder(what, render_shapes, per_byte=_PER_BYTE, options=(shape, width))


def point() -> RenderedDecoder:
    return _of_width("point", POINT, 16)


def lseg() -> RenderedDecoder:
    return _of_width("lseg", LSEG, 32)


def box() -> RenderedDecoder:
    return _of_width("box", BOX, 32)


def line() -> RenderedDecoder:
    return _of_width("line", LINE, 24)


def circle() -> RenderedDecoder:
    return _of_width("circle", CIRCLE, 24)


def path() -> RenderedDecoder:
    return RenderedDecoder("path", render_paths, per_byte=_PER_BYTE, options=(PATH,))


def polygon() -> RenderedDecoder:
    return RenderedDecoder("polygon", render_paths, per_byte=_PER_BYTE, options=(POLYGON,))
