"""Types of fixed width: booleans, integers, floats, uuid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from walrelay.decode.base import Fields, Tally, bad_field, bitmap, bits
from walrelay.wire.kernel import OK, be16, be32, be64, kernel


@kernel
def read_1(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
        elif lengths[i] != 1:
            return i
        else:
            valid[i] = 1
            out[i] = buf[starts[i]]
    return OK


@kernel
def read_2(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
        elif lengths[i] != 2:
            return i
        else:
            valid[i] = 1
            out[i] = be16(buf, starts[i])
    return OK


@kernel
def read_4(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
        elif lengths[i] != 4:
            return i
        else:
            valid[i] = 1
            out[i] = be32(buf, starts[i])
    return OK


@kernel
def read_unsigned_4(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    """oid and xid are unsigned 32-bit; `out` is int64."""
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
        elif lengths[i] != 4:
            return i
        else:
            valid[i] = 1
            out[i] = np.int64(be32(buf, starts[i])) & np.int64(0xFFFFFFFF)
    return OK


@kernel
def read_8(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            out[i] = 0
        elif lengths[i] != 8:
            return i
        else:
            valid[i] = 1
            out[i] = be64(buf, starts[i])
    return OK


@kernel
def read_16(buf: Any, starts: Any, lengths: Any, out: Any, valid: Any) -> int:
    """Sixteen bytes as they are (uuid); `out` is n × 16 bytes."""
    for i in range(starts.size):
        if lengths[i] < 0:
            valid[i] = 0
            for k in range(16):
                out[i * 16 + k] = 0
        elif lengths[i] != 16:
            return i
        else:
            valid[i] = 1
            start = starts[i]
            for k in range(16):
                out[i * 16 + k] = buf[start + k]
    return OK


@dataclass(frozen=True)
class FixedDecoder:
    """Values of `width` bytes read by `kernel` into an array of `storage`, seen as `arrow_type`."""

    arrow_type: pa.DataType
    read: Any
    storage: Any
    per_value: int = 1

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out = np.empty(n * self.per_value, dtype=self.storage)
        valid = np.empty(n, dtype=np.uint8)
        bad = self.read(fields.buf, fields.starts, fields.lengths, out, valid)
        if bad != OK:
            raise bad_field(fields, bad, f"a {self.arrow_type} value has {fields.lengths[bad]} bytes")
        return fixed_array(self.arrow_type, n, bitmap(valid), pa.py_buffer(out))


class BoolDecoder:
    """bool: one byte, 0 or 1."""

    arrow_type = pa.bool_()

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        out = np.empty(n, dtype=np.uint8)
        valid = np.empty(n, dtype=np.uint8)
        bad = read_1(fields.buf, fields.starts, fields.lengths, out, valid)
        if bad != OK:
            raise bad_field(fields, bad, f"a boolean has {fields.lengths[bad]} bytes")
        if n and out.max() > 1:
            raise bad_field(fields, int(np.argmax(out > 1)), "a boolean is neither 0 nor 1")
        return pa.Array.from_buffers(pa.bool_(), n, [bitmap(valid), bits(out)])


def fixed_array(arrow_type: pa.DataType, n: int, valid: pa.Buffer | None, values: pa.Buffer) -> pa.Array:
    """An Arrow array of fixed-width values; extension types (uuid) wrap their storage."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        storage = pa.Array.from_buffers(arrow_type.storage_type, n, [valid, values])
        return pa.ExtensionArray.from_storage(arrow_type, storage)
    return pa.Array.from_buffers(arrow_type, n, [valid, values])


def int16() -> FixedDecoder:
    return FixedDecoder(pa.int16(), read_2, np.int16)


def int32() -> FixedDecoder:
    return FixedDecoder(pa.int32(), read_4, np.int32)


def int64() -> FixedDecoder:
    return FixedDecoder(pa.int64(), read_8, np.int64)


def unsigned32() -> FixedDecoder:
    return FixedDecoder(pa.int64(), read_unsigned_4, np.int64)


def float32() -> FixedDecoder:
    # The bits are those of an int32; only the name of the type differs.
    return FixedDecoder(pa.float32(), read_4, np.int32)


def float64() -> FixedDecoder:
    return FixedDecoder(pa.float64(), read_8, np.int64)


def uuid() -> FixedDecoder:
    return FixedDecoder(pa.uuid(), read_16, np.uint8, per_value=16)
