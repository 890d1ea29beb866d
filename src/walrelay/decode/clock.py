"""time and timetz as text; Postgres prints up to six decimals and cuts their trailing zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.rendered import COLON, MINUS, PLUS, POINT, RenderedDecoder, put_padded
from walrelay.wire.kernel import OK, be32, be64, kernel

MICROSECONDS_PER_DAY = 86_400_000_000
ZONE_LIMIT = 16 * 3600
"""Seconds; utils/timestamp.h, TZDISP_LIMIT. 24:00:00 is a time, a zone of 16 hours is not a zone."""


@kernel
def put_time(out: Any, at: Any, microseconds: Any) -> Any:
    """Write HH:MM:SS[.ffffff]."""
    seconds, fraction = microseconds // 1_000_000, microseconds % 1_000_000
    at = put_padded(out, at, seconds // 3600, 2)
    out[at] = COLON
    at = put_padded(out, at + 1, seconds // 60 % 60, 2)
    out[at] = COLON
    at = put_padded(out, at + 1, seconds % 60, 2)
    if fraction == 0:
        return at
    digits = 6
    while fraction % 10 == 0:
        fraction //= 10
        digits -= 1
    out[at] = POINT
    return put_padded(out, at + 1, fraction, digits)


@kernel
def put_zone(out: Any, at: Any, west: Any) -> Any:
    """Write ±HH[:MM[:SS]]; on the wire seconds count westward, in the text eastward."""
    out[at] = MINUS if west > 0 else PLUS
    seconds = abs(west)
    at = put_padded(out, at + 1, seconds // 3600, 2)
    if seconds % 3600 == 0:
        return at
    out[at] = COLON
    at = put_padded(out, at + 1, seconds // 60 % 60, 2)
    if seconds % 60 == 0:
        return at
    out[at] = COLON
    return put_padded(out, at + 1, seconds % 60, 2)


@kernel
def render_times(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, width: int) -> int:
    """An int64 of microseconds since midnight and, when `width` is 12, an int32 of seconds west of UTC."""
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != width:
            return i
        microseconds = be64(buf, starts[i])
        if microseconds < 0 or microseconds > MICROSECONDS_PER_DAY:
            return i
        at = put_time(out, at, microseconds)
        if width == 12:
            west = np.int64(be32(buf, starts[i] + 8))
            if west <= -ZONE_LIMIT or west >= ZONE_LIMIT:
                return i
            at = put_zone(out, at, west)
    offsets[starts.size] = at
    return OK


def timetz() -> RenderedDecoder:
    return RenderedDecoder("timetz", render_times, per_value=24, options=(12,))


def time_text() -> RenderedDecoder:
    """time, for a reader without such a type (Spark)."""
    return RenderedDecoder("time", render_times, per_value=15, options=(8,))
