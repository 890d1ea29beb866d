"""Dates, times, timestamps and intervals.

Postgres counts from 2000-01-01, Arrow from 1970-01-01. Infinity is Postgres's largest and smallest integer; where the
target holds infinity it is kept as ±(largest integer), which is how DuckDB stores its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from walrelay.decode.base import CLAMP, KEEP, Fields, Tally, bad_field, bitmap
from walrelay.decode.fixed import fixed_array, read_8
from walrelay.model.special import Special
from walrelay.wire.kernel import OK, be32, be64, kernel

EPOCH_DAYS = 10_957
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
TIMESTAMP_MIN = -211_813_488_000_000_000
"""4714-11-24 BC, Postgres's least timestamp, in µs since 2000."""
DATE_MIN = -2_451_545
"""4714-11-24 BC in days since 2000; the largest date, 5874897-12-31, fits in Arrow with room to spare."""
DATE_MAX = 2_145_031_948
DAY_MICROS = 86_400_000_000


@kernel
def read_timestamps(
    buf: Any, starts: Any, lengths: Any, infinity: int, beyond: int, out: Any, valid: Any, counts: Any
) -> int:
    """µs since 2000 → µs since 1970. `infinity` and `beyond` say what to do with values Arrow's type cannot show."""
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
            continue
        if lengths[i] != 8:
            return i
        value = be64(buf, starts[i])
        valid[i] = 1
        if value == INT64_MAX or value == -INT64_MAX - 1:
            if infinity == KEEP:
                out[i] = INT64_MAX if value > 0 else -INT64_MAX
                continue
            counts[0] += 1
            if infinity == CLAMP:
                out[i] = INT64_MAX - 1 if value > 0 else TIMESTAMP_MIN + EPOCH_MICROS
            else:
                valid[i] = 0
                out[i] = 0
        elif value < TIMESTAMP_MIN:
            return i
        elif value >= INT64_MAX - EPOCH_MICROS:
            # The last 29 years of Postgres's range do not fit into 64 bits counted from 1970.
            counts[1] += 1
            if beyond == CLAMP:
                out[i] = INT64_MAX - 1
            else:
                valid[i] = 0
                out[i] = 0
        else:
            out[i] = value + EPOCH_MICROS
    return OK


@kernel
def read_dates(buf: Any, starts: Any, lengths: Any, infinity: int, out: Any, valid: Any, counts: Any) -> int:
    """Days since 2000 → days since 1970."""
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
            continue
        if lengths[i] != 4:
            return i
        value = np.int64(be32(buf, starts[i]))
        valid[i] = 1
        if value == INT32_MAX or value == -INT32_MAX - 1:
            if infinity == KEEP:
                out[i] = INT32_MAX if value > 0 else -INT32_MAX
                continue
            counts[0] += 1
            if infinity == CLAMP:
                out[i] = (DATE_MAX if value > 0 else DATE_MIN) + EPOCH_DAYS
            else:
                valid[i] = 0
                out[i] = 0
        elif value < DATE_MIN or value > DATE_MAX:
            return i
        else:
            out[i] = value + EPOCH_DAYS
    return OK


@kernel
def read_intervals(
    buf: Any,
    starts: Any,
    lengths: Any,
    infinity: int,
    months: Any,
    days: Any,
    micros: Any,
    valid: Any,
    counts: Any,
) -> int:
    """Microseconds, days, months. All at their limit together is infinity, since Postgres 17."""
    for i in range(starts.size):
        months[i] = 0
        days[i] = 0
        micros[i] = 0
        if lengths[i] < 0:
            valid[i] = 0
            continue
        if lengths[i] != 16:
            return i
        valid[i] = 1
        at = starts[i]
        micro, day, month = be64(buf, at), be32(buf, at + 8), be32(buf, at + 12)
        infinite = (micro == INT64_MAX and day == INT32_MAX and month == INT32_MAX) or (
            micro == -INT64_MAX - 1 and day == -INT32_MAX - 1 and month == -INT32_MAX - 1
        )
        if infinite and infinity != KEEP:
            counts[0] += 1
            if infinity != CLAMP:
                valid[i] = 0
                continue
        micros[i] = micro
        days[i] = day
        months[i] = month
    return OK


@dataclass(frozen=True)
class TimestampDecoder:
    """timestamp and timestamptz: µs since 2000."""

    arrow_type: pa.DataType

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out, valid, counts = np.empty(n, np.int64), np.empty(n, np.uint8), np.zeros(2, np.int64)
        infinity, beyond = tally.mode(Special.TIMESTAMP_INFINITY), tally.mode(Special.TIMESTAMP_RANGE)
        bad = read_timestamps(fields.buf, fields.starts, fields.lengths, infinity, beyond, out, valid, counts)
        if bad != OK:
            raise bad_field(fields, bad, "not a timestamp")
        tally.treat(Special.TIMESTAMP_INFINITY, int(counts[0]))
        tally.treat(Special.TIMESTAMP_RANGE, int(counts[1]))
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


class DateDecoder:
    """date: days since 2000."""

    arrow_type = pa.date32()

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out, valid, counts = np.empty(n, np.int32), np.empty(n, np.uint8), np.zeros(1, np.int64)
        infinity = tally.mode(Special.DATE_INFINITY)
        bad = read_dates(fields.buf, fields.starts, fields.lengths, infinity, out, valid, counts)
        if bad != OK:
            raise bad_field(fields, bad, "not a date")
        tally.treat(Special.DATE_INFINITY, int(counts[0]))
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


class TimeDecoder:
    """time: µs since midnight; 24:00:00 is a value of its own and kept."""

    arrow_type = pa.time64("us")

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out, valid = np.empty(n, np.int64), np.empty(n, np.uint8)
        bad = read_8(fields.buf, fields.starts, fields.lengths, out, valid)
        if bad == OK and n and (out.min() < 0 or out.max() > DAY_MICROS):
            bad = int(np.argmax((out < 0) | (out > DAY_MICROS)))
        if bad != OK:
            raise bad_field(fields, bad, "not a time of day")
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


class IntervalDecoder:
    """interval: months, days and microseconds, kept apart as Postgres keeps them."""

    arrow_type = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        months, days, micros = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
        valid, counts = np.empty(n, np.uint8), np.zeros(1, np.int64)
        infinity = tally.mode(Special.INTERVAL_INFINITY)
        bad = read_intervals(fields.buf, fields.starts, fields.lengths, infinity, months, days, micros, valid, counts)
        if bad != OK:
            raise bad_field(fields, bad, "not an interval")
        tally.treat(Special.INTERVAL_INFINITY, int(counts[0]))
        parts = [pa.array(part) for part in (months, days, micros)]
        return pa.Array.from_buffers(self.arrow_type, n, [bitmap(valid)], children=parts)


def timestamp() -> TimestampDecoder:
    return TimestampDecoder(pa.timestamp("us"))


def timestamptz() -> TimestampDecoder:
    return TimestampDecoder(pa.timestamp("us", "UTC"))
