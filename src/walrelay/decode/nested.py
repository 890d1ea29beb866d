"""Arrays, composites, ranges, multiranges, vectors: their parts are fields in the same buffer, decoded in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.decode.base import CLAMP, Decoder, Fields, Tally, bad_field, bitmap, bits
from walrelay.model.special import Special
from walrelay.wire.kernel import OK, be16, be32, kernel

MAX_DIMENSIONS = 6
EMPTY, LOWER_INC, UPPER_INC, LOWER_INF, UPPER_INF = 0x01, 0x02, 0x04, 0x08, 0x10


@kernel
def measure_arrays(
    buf: Any,
    starts: Any,
    lengths: Any,
    depth: int,
    clamp: bool,
    shape: Any,
    firsts: Any,
    valid: Any,
    counts: Any,
) -> int:
    """Read the headers: `shape` gets the length of every level, `firsts` where the elements begin.

    An array whose dimensions are not the declared `depth` is counted, and becomes NULL or, when `clamp`, is fitted:
    inner dimensions run together, or missing outer ones added.
    """
    for i in range(starts.size):
        valid[i] = 0
        firsts[i] = starts[i]
        for k in range(depth):
            shape[i, k] = 0
        if lengths[i] < 0:
            continue
        start, end = np.int64(starts[i]), np.int64(starts[i]) + lengths[i]
        if lengths[i] < 12:
            return i
        dimensions = np.int64(be32(buf, start))
        if dimensions < 0 or dimensions > MAX_DIMENSIONS or end < start + 12 + 8 * dimensions:
            return i
        firsts[i] = start + 12 + 8 * dimensions
        total = np.int64(1) if dimensions > 0 else np.int64(0)
        moved = False
        for k in range(dimensions):
            length = np.int64(be32(buf, start + 12 + 8 * k))
            # A dimension without elements is sent for an empty int2vector or oidvector alone.
            if length < 0 or (length == 0 and dimensions > 1):
                return i
            total *= length
            # Every element has a length word, so a true count never exceeds a quarter of the bytes.
            if total * 4 > end - firsts[i]:
                return i
            moved |= be32(buf, start + 16 + 8 * k) != 1
        if total == 0 and firsts[i] != end:
            return i
        if moved:
            counts[1] += 1
        valid[i] = 1
        if dimensions == 0:
            continue
        if dimensions == depth:
            for k in range(depth):
                shape[i, k] = be32(buf, start + 12 + 8 * k)
            continue
        counts[0] += 1
        if not clamp:
            valid[i] = 0
            continue
        lead = depth - dimensions if depth > dimensions else 0
        for k in range(lead):
            shape[i, k] = 1
        inner = np.int64(1)
        for k in range(depth - lead - 1):
            shape[i, lead + k] = be32(buf, start + 12 + 8 * k)
            inner *= shape[i, lead + k]
        shape[i, depth - 1] = total // inner
    return OK


@kernel
def walk_elements(
    buf: Any, starts: Any, lengths: Any, firsts: Any, totals: Any, out_starts: Any, out_lengths: Any
) -> int:
    """Find every element of every array; the elements must fill the value exactly."""
    element = 0
    for i in range(starts.size):
        if totals[i] == 0:
            continue
        at, end = np.int64(firsts[i]), np.int64(starts[i]) + lengths[i]
        for _ in range(totals[i]):
            if at + 4 > end:
                return i
            length = np.int64(be32(buf, at))
            at += 4
            if length < -1 or (length > 0 and at + length > end):
                return i
            out_starts[element] = at
            out_lengths[element] = length
            element += 1
            if length > 0:
                at += length
        if at != end:
            return i
    return OK


@kernel
def walk_composites(
    buf: Any, starts: Any, lengths: Any, width: int, out_starts: Any, out_lengths: Any, valid: Any
) -> int:
    """Find every attribute: a count, then oid, length and bytes of each."""
    for i in range(starts.size):
        for k in range(width):
            out_starts[k, i] = starts[i] if lengths[i] >= 0 else 0
            out_lengths[k, i] = -1
        valid[i] = 0
        if lengths[i] < 0:
            continue
        valid[i] = 1
        at, end = np.int64(starts[i]), np.int64(starts[i]) + lengths[i]
        if at + 4 > end or be32(buf, at) != width:
            return i
        at += 4
        for k in range(width):
            if at + 8 > end:
                return i
            length = np.int64(be32(buf, at + 4))
            at += 8
            if length < -1 or (length > 0 and at + length > end):
                return i
            out_starts[k, i] = at
            out_lengths[k, i] = length
            if length > 0:
                at += length
        if at != end:
            return i
    return OK


@kernel
def walk_ranges(buf: Any, starts: Any, lengths: Any, out_starts: Any, out_lengths: Any, flags: Any, valid: Any) -> int:
    """A byte of flags, then length and bytes of each finite bound."""
    for i in range(starts.size):
        for k in range(2):
            out_starts[k, i] = starts[i] if lengths[i] >= 0 else 0
            out_lengths[k, i] = -1
        flags[i] = 0
        valid[i] = 0
        if lengths[i] < 0:
            continue
        valid[i] = 1
        at, end = np.int64(starts[i]), np.int64(starts[i]) + lengths[i]
        if at + 1 > end:
            return i
        flag = buf[at]
        flags[i] = flag
        at += 1
        if flag & 0xE0:
            return i
        for k in range(2):
            infinite = LOWER_INF if k == 0 else UPPER_INF
            if flag & EMPTY or flag & infinite:
                continue
            if at + 4 > end:
                return i
            length = np.int64(be32(buf, at))
            at += 4
            if length < 0 or at + length > end:
                return i
            out_starts[k, i] = at
            out_lengths[k, i] = length
            at += length
        if at != end:
            return i
    return OK


@kernel
def count_multiranges(buf: Any, starts: Any, lengths: Any, firsts: Any, totals: Any, valid: Any) -> int:
    for i in range(starts.size):
        valid[i] = 0
        totals[i] = 0
        firsts[i] = starts[i]
        if lengths[i] < 0:
            continue
        valid[i] = 1
        if lengths[i] < 4:
            return i
        total = np.int64(be32(buf, starts[i]))
        if total < 0 or total * 4 > lengths[i] - 4 or (total == 0 and lengths[i] != 4):
            return i
        totals[i] = total
        firsts[i] = starts[i] + 4
    return OK


@kernel
def count_vectors(buf: Any, starts: Any, lengths: Any, size: int, totals: Any, valid: Any) -> int:
    """pgvector: a 16-bit count, 16 unused bits, then floats of `size` bytes."""
    for i in range(starts.size):
        valid[i] = 0
        totals[i] = 0
        if lengths[i] < 0:
            continue
        valid[i] = 1
        if lengths[i] < 4:
            return i
        total = np.int64(be16(buf, starts[i]))
        if total < 0 or lengths[i] != 4 + size * total:
            return i
        totals[i] = total
    return OK


@kernel
def gather_floats(buf: Any, starts: Any, totals: Any, size: int, out: Any) -> None:
    at = 0
    for i in range(starts.size):
        for k in range(totals[i]):
            if size == 4:
                out[at] = be32(buf, starts[i] + 4 + 4 * k)
            else:
                out[at] = be16(buf, starts[i] + 4 + 2 * k)
            at += 1


def offsets_of(totals: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Arrow's list offsets for lists of these lengths."""
    offsets = np.zeros(len(totals) + 1, dtype=np.int32)
    np.cumsum(totals, out=offsets[1:])
    return offsets


def list_array(kind: pa.DataType, valid: pa.Buffer | None, totals: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(kind, len(totals), [valid, pa.py_buffer(offsets_of(totals))], children=[values])


@dataclass(frozen=True)
class ArrayDecoder:
    """An array as nested lists of the declared depth; NULL elements kept.

    Postgres does not enforce a declared number of dimensions: an array of another shape is a special value. Where the
    index of an array starts (`[0:2]={…}`) has no place in a list and is dropped, counted.
    """

    element: Decoder
    depth: int = 1
    zero_based: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        kind = self.element.arrow_type
        for _ in range(self.depth):
            kind = pa.list_(kind)
        return kind

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        shape, firsts = np.empty((n, self.depth), np.int64), np.empty(n, np.int64)
        valid, counts = np.empty(n, np.uint8), np.zeros(2, np.int64)
        clamp = tally.mode(Special.ARRAY_SHAPE) == CLAMP
        bad = measure_arrays(fields.buf, fields.starts, fields.lengths, self.depth, clamp, shape, firsts, valid, counts)
        if bad != OK:
            raise bad_field(fields, bad, "not an array")
        tally.treat(Special.ARRAY_SHAPE, int(counts[0]))
        tally.treat(Special.ARRAY_BOUNDS, 0 if self.zero_based else int(counts[1]))
        totals = shape.prod(axis=1)
        values = self.element.decode(elements_of(fields, firsts, totals, "array"), tally)
        for level in range(self.depth - 1, 0, -1):
            lists = shape[:, :level].prod(axis=1)
            values = list_array(pa.list_(values.type), None, np.repeat(shape[:, level], lists), values)
        return list_array(pa.list_(values.type), bitmap(valid), shape[:, 0], values)


def elements_of(fields: Fields, firsts: Any, totals: Any, what: str) -> Fields:
    """The fields of all elements of all values, in order."""
    count = int(totals.sum())
    starts, lengths = np.empty(count, np.int32), np.empty(count, np.int32)
    bad = walk_elements(fields.buf, fields.starts, fields.lengths, firsts, totals, starts, lengths)
    if bad != OK:
        raise bad_field(fields, bad, f"not a {what}")
    return Fields(fields.buf, starts, lengths)


@dataclass(frozen=True)
class CompositeDecoder:
    """A composite as a struct of its attributes."""

    names: tuple[str, ...]
    parts: tuple[Decoder, ...]

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field(n, p.arrow_type) for n, p in zip(self.names, self.parts, strict=True)])

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n, width = len(fields), len(self.parts)
        starts, lengths = np.empty((width, n), np.int32), np.empty((width, n), np.int32)
        valid = np.empty(n, np.uint8)
        bad = walk_composites(fields.buf, fields.starts, fields.lengths, width, starts, lengths, valid)
        if bad != OK:
            raise bad_field(fields, bad, f"not a composite of {width} attributes")
        children = [part.decode(Fields(fields.buf, starts[k], lengths[k]), tally) for k, part in enumerate(self.parts)]
        return pa.Array.from_buffers(self.arrow_type, n, [bitmap(valid)], children=children)


@dataclass(frozen=True)
class RangeDecoder:
    """A range as struct(lower, upper, lower_inc, upper_inc, empty); an unbounded side is NULL."""

    bound: Decoder

    @property
    def arrow_type(self) -> pa.DataType:
        bound = self.bound.arrow_type
        inc = [pa.field(name, pa.bool_()) for name in ("lower_inc", "upper_inc", "empty")]
        return pa.struct([pa.field("lower", bound), pa.field("upper", bound), *inc])

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        starts, lengths = np.empty((2, n), np.int32), np.empty((2, n), np.int32)
        flags, valid = np.empty(n, np.uint8), np.empty(n, np.uint8)
        bad = walk_ranges(fields.buf, fields.starts, fields.lengths, starts, lengths, flags, valid)
        if bad != OK:
            raise bad_field(fields, bad, "not a range")
        bounds = [self.bound.decode(Fields(fields.buf, starts[k], lengths[k]), tally) for k in range(2)]
        for k, bound in enumerate(bounds):
            if bound.null_count > np.count_nonzero(lengths[k] < 0):
                # A bound that policy made NULL would read as «unbounded»: the range goes with it.
                valid[(lengths[k] >= 0) & bound.is_null().to_numpy(zero_copy_only=False)] = 0
        known = bitmap(valid)
        marks = [
            pa.Array.from_buffers(pa.bool_(), n, [known, bits((flags & mask) != 0)])
            for mask in (LOWER_INC, UPPER_INC, EMPTY)
        ]
        return pa.Array.from_buffers(self.arrow_type, n, [known], children=[*bounds, *marks])


@dataclass(frozen=True)
class MultirangeDecoder:
    """A multirange as a list of ranges."""

    ranges: RangeDecoder

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.ranges.arrow_type)

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        firsts, totals, valid = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8)
        bad = count_multiranges(fields.buf, fields.starts, fields.lengths, firsts, totals, valid)
        if bad != OK:
            raise bad_field(fields, bad, "not a multirange")
        parts = elements_of(fields, firsts, totals, "multirange")
        if len(parts) and parts.lengths.min() < 0:
            raise bad_field(parts, int(np.argmin(parts.lengths)), "a multirange holds a NULL")
        return list_array(self.arrow_type, bitmap(valid), totals, self.ranges.decode(parts, tally))


@dataclass(frozen=True)
class VectorDecoder:
    """pgvector's vector (4-byte floats) and halfvec (2-byte) as a list of floats."""

    size: int = 4
    arrow_type: pa.DataType = pa.list_(pa.float32())

    def decode(self, fields: Fields, tally: Tally) -> pa.Array:
        n = len(fields)
        totals, valid = np.empty(n, np.int64), np.empty(n, np.uint8)
        bad = count_vectors(fields.buf, fields.starts, fields.lengths, self.size, totals, valid)
        if bad != OK:
            raise bad_field(fields, bad, "not a vector")
        raw = np.empty(int(totals.sum()), np.int32 if self.size == 4 else np.int16)
        gather_floats(fields.buf, fields.starts, totals, self.size, raw)
        floats = raw.view(np.float32) if self.size == 4 else raw.view(np.float16).astype(np.float32)
        return list_array(self.arrow_type, bitmap(valid), totals, pa.array(floats, from_pandas=False))
