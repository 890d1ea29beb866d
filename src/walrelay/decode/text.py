"""Text and bytes: values that are taken as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from walrelay.decode.base import Fields, Tally, bad_field, bitmap
from walrelay.errors import BadBytesError
from walrelay.wire.kernel import OK, kernel

MAX_COLUMN_BYTES = 2**31 - 1
"""Arrow's 32-bit offsets; chunks are far smaller, so this only guards against nonsense."""


@kernel
def measure_bytes(starts: Any, lengths: Any, skip: int) -> Any:
    """(bad row or OK, total bytes after dropping the first `skip` of each value)."""
    total = np.int64(0)
    for i in range(starts.size):
        if lengths[i] >= 0:
            if lengths[i] < skip:
                return i, total
            total += lengths[i] - skip
    return OK, total


@kernel
def gather_bytes(buf: Any, starts: Any, lengths: Any, skip: int, out: Any, offsets: Any, valid: Any) -> int:
    """Copy the values one after the other; returns the OR of all bytes, whose high bit says «not plain ASCII»."""
    at = 0
    seen = np.uint8(0)
    for i in range(starts.size):
        offsets[i] = at
        if lengths[i] < 0:
            valid[i] = 0
            continue
        valid[i] = 1
        start = starts[i] + skip
        for k in range(lengths[i] - skip):
            byte = buf[start + k]
            seen |= byte
            out[at + k] = byte
        at += lengths[i] - skip
    offsets[starts.size] = at
    return int(seen)


@kernel
def first_other(buf: Any, starts: Any, lengths: Any, version: int) -> int:
    """The first value whose leading byte is not `version`, or OK."""
    for i in range(starts.size):
        if lengths[i] > 0 and buf[starts[i]] != version:
            return i
    return OK


@kernel
def first_bad_utf8(data: Any, offsets: Any) -> int:
    """The first value that is not well-formed UTF-8 (Unicode 15, table 3-7), or OK."""
    for i in range(offsets.size - 1):
        at = offsets[i]
        end = offsets[i + 1]
        while at < end:
            b0 = data[at]
            if b0 < 0x80:
                at += 1
                continue
            low, high = 0x80, 0xBF
            if 0xC2 <= b0 <= 0xDF:
                more = 1
            elif 0xE0 <= b0 <= 0xEF:
                more = 2
                if b0 == 0xE0:
                    low = 0xA0
                elif b0 == 0xED:
                    high = 0x9F
            elif 0xF0 <= b0 <= 0xF4:
                more = 3
                if b0 == 0xF0:
                    low = 0x90
                elif b0 == 0xF4:
                    high = 0x8F
            else:
                return i
            if at + more >= end:
                return i
            if data[at + 1] < low or data[at + 1] > high:
                return i
            for k in range(2, more + 1):
                if data[at + k] < 0x80 or data[at + k] > 0xBF:
                    return i
            at += more + 1
    return OK


@dataclass(frozen=True)
class BytesDecoder:
    """Values as they stand, as binary or as checked UTF-8 text; `version` is a leading byte to expect and drop."""

    arrow_type: pa.DataType
    version: int | None = None

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        skip = 0 if self.version is None else 1
        bad, total = measure_bytes(fields.starts, fields.lengths, skip)
        if bad != OK:
            raise bad_field(fields, bad, "a value lacks its version byte")
        if self.version is not None:
            bad = first_other(fields.buf, fields.starts, fields.lengths, self.version)
            if bad != OK:
                raise bad_field(fields, bad, f"version byte {fields.buf[fields.starts[bad]]}, expected {self.version}")
        if total > MAX_COLUMN_BYTES:
            raise BadBytesError("a column of one chunk exceeds 2 GiB", position=int(fields.starts[0]))
        if n == 1 and 2 * int(fields.lengths[0]) > len(fields.buf):
            return self._one(fields, skip)
        out = np.empty(total, dtype=np.uint8)
        offsets = np.empty(n + 1, dtype=np.int32)
        valid = np.empty(n, dtype=np.uint8)
        seen = gather_bytes(fields.buf, fields.starts, fields.lengths, skip, out, offsets, valid)
        if seen & 0x80 and pa.types.is_string(self.arrow_type):
            self._check_utf8(fields, out, offsets)
        return pa.Array.from_buffers(self.arrow_type, n, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)])

    def _one(self, fields: Fields, skip: int) -> pa.Array:
        """A single huge value without a copy; the buffer it fills is not used again (`CopyBuffer`)."""
        start, length = int(fields.starts[0]) + skip, int(fields.lengths[0]) - skip
        out = fields.buf[start : start + length]
        offsets = np.array([0, length], dtype=np.int32)
        if pa.types.is_string(self.arrow_type):
            self._check_utf8(fields, out, offsets)
        return pa.Array.from_buffers(self.arrow_type, 1, [None, pa.py_buffer(offsets), pa.py_buffer(out)])

    @staticmethod
    def _check_utf8(fields: Fields, out: Any, offsets: Any) -> None:
        bad = first_bad_utf8(out, offsets)
        if bad != OK:
            raise bad_field(fields, bad, "text is not valid UTF-8")


def text() -> BytesDecoder:
    return BytesDecoder(pa.string())


def versioned_text() -> BytesDecoder:
    """jsonb, jsonpath, ltree: a version byte 1, then the text as Postgres prints it."""
    return BytesDecoder(pa.string(), version=1)


def binary() -> BytesDecoder:
    return BytesDecoder(pa.binary())
