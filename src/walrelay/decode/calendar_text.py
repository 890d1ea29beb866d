"""Dates and timestamps as the text Postgres prints (ISO style, UTC): for targets that are text themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.clock import put_time
from walrelay.decode.datetime import DATE_MAX, DATE_MIN, DAY_MICROS, INT32_MAX, INT64_MAX, TIMESTAMP_MIN
from walrelay.decode.rendered import MINUS, RenderedDecoder, put_padded, put_unsigned
from walrelay.wire.kernel import OK, be32, be64, kernel

ROOM = 48
"""`294276-12-31 23:59:59.999999+00 BC` and then some."""


@kernel
def put_date(out: Any, at: Any, days: Any) -> Any:
    """Write year-month-day of `days` since 2000-01-01; returns (next place, whether it is BC).

    Counted in 400-year eras from 0000-03-01, so that the leap day comes last.
    """
    z = days + 730_425
    era = z // 146_097
    day_of_era = z - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    before_christ = year <= 0
    shown = 1 - year if before_christ else year
    at = put_unsigned(out, at, shown) if shown > 9_999 else put_padded(out, at, shown, 4)
    out[at] = MINUS
    at = put_padded(out, at + 1, month, 2)
    out[at] = MINUS
    return put_padded(out, at + 1, day, 2), before_christ


@kernel
def put_words(out: Any, at: int, words: Any) -> int:
    for k in range(len(words)):
        out[at + k] = words[k]
    return at + len(words)


@kernel
def render_dates(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != 4:
            return i
        value = np.int64(be32(buf, starts[i]))
        if value == INT32_MAX:
            at = put_words(out, at, b"infinity")
        elif value == -INT32_MAX - 1:
            at = put_words(out, at, b"-infinity")
        elif value < DATE_MIN or value > DATE_MAX:
            return i
        else:
            at, before_christ = put_date(out, at, value)
            if before_christ:
                at = put_words(out, at, b" BC")
    offsets[starts.size] = at
    return OK


@kernel
def render_stamps(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, zoned: int) -> int:
    at = 0
    for i in range(starts.size):
        offsets[i] = at
        valid[i] = lengths[i] >= 0
        if lengths[i] < 0:
            continue
        if lengths[i] != 8:
            return i
        value = be64(buf, starts[i])
        if value == INT64_MAX:
            at = put_words(out, at, b"infinity")
        elif value == -INT64_MAX - 1:
            at = put_words(out, at, b"-infinity")
        elif value < TIMESTAMP_MIN:
            return i
        else:
            days = value // DAY_MICROS
            at, before_christ = put_date(out, at, days)
            out[at] = 32
            at = put_time(out, at + 1, value - days * DAY_MICROS)
            if zoned:
                at = put_words(out, at, b"+00")
            if before_christ:
                at = put_words(out, at, b" BC")
    offsets[starts.size] = at
    return OK


def date_text() -> RenderedDecoder:
    return RenderedDecoder("date", render_dates, per_value=ROOM)


def timestamp_text() -> RenderedDecoder:
    return RenderedDecoder("timestamp", render_stamps, per_value=ROOM, options=(0,))


def timestamptz_text() -> RenderedDecoder:
    """In UTC, as a session with that time zone would see it."""
    return RenderedDecoder("timestamp with time zone", render_stamps, per_value=ROOM, options=(1,))
