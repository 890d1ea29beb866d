"""Dates and timestamps as the text Postgres prints (ISO style, UTC): for targets that are text themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.decode.datetime import DATE_MAX, DATE_MIN, DAY_MICROS, INT32_MAX, INT64_MAX, TIMESTAMP_MIN
from walrelay.decode.kernel import OK, be32, be64, kernel
from walrelay.decode.rendered import RenderedDecoder

ROOM = 48
"""`294276-12-31 23:59:59.999999+00 BC` and then some."""


@kernel
def put_number(out: Any, at: int, value: int, least: int) -> int:
    """`value` in decimal, with at least `least` digits."""
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    digits = max(digits, least)
    for k in range(digits - 1, -1, -1):
        out[at + k] = 48 + value % 10
        value //= 10
    return at + digits


@kernel
def put_date(out: Any, at: int, days: int) -> Any:
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
    at = put_number(out, at, 1 - year if before_christ else year, 4)
    out[at] = 45
    at = put_number(out, at + 1, month, 2)
    out[at] = 45
    return put_number(out, at + 1, day, 2), before_christ


@kernel
def put_words(out: Any, at: int, words: Any) -> int:
    for k in range(len(words)):
        out[at + k] = words[k]
    return at + len(words)


@kernel
def put_time(out: Any, at: int, micros: int) -> int:
    """HH:MM:SS, and a fraction without trailing zeros."""
    seconds = micros // 1_000_000
    fraction = micros % 1_000_000
    at = put_number(out, at, seconds // 3600, 2)
    out[at] = 58
    at = put_number(out, at + 1, seconds // 60 % 60, 2)
    out[at] = 58
    at = put_number(out, at + 1, seconds % 60, 2)
    if fraction:
        out[at] = 46
        at = put_number(out, at + 1, fraction, 6)
        while out[at - 1] == 48:
            at -= 1
    return at


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
def render_stamps(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any, zoned: bool) -> int:
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


@kernel
def render_plain(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    return render_stamps(buf, starts, lengths, out, offsets, valid, False)


@kernel
def render_zoned(buf: Any, starts: Any, lengths: Any, out: Any, offsets: Any, valid: Any) -> int:
    return render_stamps(buf, starts, lengths, out, offsets, valid, True)


def date_text() -> RenderedDecoder:
    return RenderedDecoder("date", render_dates, per_value=ROOM)


def timestamp_text() -> RenderedDecoder:
    return RenderedDecoder("timestamp", render_plain, per_value=ROOM)


def timestamptz_text() -> RenderedDecoder:
    """In UTC, as a session with that time zone would see it."""
    return RenderedDecoder("timestamp with time zone", render_zoned, per_value=ROOM)
