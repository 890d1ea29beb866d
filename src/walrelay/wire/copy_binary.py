"""COPY's binary format: find every field of every row in a buffer of received bytes.

The stream is a signature, flags and an extension; then rows, each a 16-bit count of fields and, per field, a 32-bit
length (-1 is NULL) and the bytes; then a count of -1. On the wire each row is one CopyData message ('d', length), and
the walk takes these frame headers in its stride, so that nothing is copied between socket and decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from walrelay.errors import BadBytesError
from walrelay.wire.kernel import be16, be32, kernel

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEADER_BYTES = len(SIGNATURE) + 8
FRAME_HEADER = 5
"""A CopyData message: 'd' and a 32-bit length that counts itself."""
MAX_MESSAGE = 0x4000_0000
"""Postgres builds no message larger than this."""

MORE, FULL, TRAILER, OTHER_FRAME = 0, 1, 2, 3
BAD_FRAME, BAD_COUNT, BAD_LENGTH, BAD_END = -1, -2, -3, -4
REASONS = {
    BAD_FRAME: "a message with an impossible length",
    BAD_COUNT: "a row with another number of fields than the table has columns",
    BAD_LENGTH: "a field with an impossible length",
    BAD_END: "a row that does not end where its message ends",
}


@kernel
def walk_rows(buf: Any, at: Any, end: Any, lead: Any, framed: bool, starts: Any, lengths: Any) -> Any:
    """Walk whole rows from `at`: (status, where it stopped, rows found, bytes the unfinished row needs).

    `starts` and `lengths` are columns × rows. `lead` bytes stand before the first row within its frame (the header).
    """
    width, limit = starts.shape
    row = 0
    while row < limit:
        begin = np.int64(at)
        here = begin
        row_end = np.int64(end)
        if framed:
            if here + 5 > end:
                return MORE, begin, row, 5
            if buf[here] != 100:
                return OTHER_FRAME, begin, row, 0
            size = np.int64(be32(buf, here + 1))
            if size < 6 + lead or size > MAX_MESSAGE:
                return BAD_FRAME, here, row, 0
            row_end = here + 1 + size
            if row_end > end:
                return MORE, begin, row, 1 + size
            here += 5 + lead
        if here + 2 > row_end:
            return MORE, begin, row, 2
        count = np.int64(be16(buf, here))
        if count == -1:
            if framed and here + 2 != row_end:
                return BAD_END, here, row, 0
            return TRAILER, here + 2, row, 0
        if count != width:
            return BAD_COUNT, here, row, 0
        here += 2
        for column in range(width):
            if here + 4 > row_end:
                if framed:
                    return BAD_END, here, row, 0
                return MORE, begin, row, here + 4 - begin
            length = np.int64(be32(buf, here))
            if length < -1 or length > MAX_MESSAGE:
                return BAD_LENGTH, here, row, 0
            here += 4
            starts[column, row] = here
            lengths[column, row] = length
            if length > 0:
                here += length
                if here > row_end:
                    if framed:
                        return BAD_LENGTH, here - length - 4, row, 0
                    return MORE, begin, row, here - begin
        if framed and here != row_end:
            return BAD_END, here, row, 0
        lead = 0
        row += 1
        at = here
    return FULL, np.int64(at), row, 0


def read_header(header: bytes, position: int) -> int:
    """Check the stream's header; returns the length of the extension that follows it."""
    if header[: len(SIGNATURE)] != SIGNATURE:
        raise BadBytesError("this is not COPY's binary format: wrong signature", position=position)
    flags = int.from_bytes(header[11:15], "big")
    if flags & 0xFFFF0000:
        raise BadBytesError("COPY flags that only a newer format has", position=position + 11)
    extension = int.from_bytes(header[15:19], "big", signed=True)
    if extension < 0 or extension > MAX_MESSAGE:
        raise BadBytesError("a header extension with an impossible length", position=position + 15)
    return extension


@dataclass(frozen=True, slots=True)
class Rows:
    """Whole rows found in `buf`; `starts` and `lengths` are columns × rows; `base` is buf's place in the stream."""

    buf: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    base: int

    def __len__(self) -> int:
        return int(self.starts.shape[1])


class CopyBuffer:
    """Takes bytes in and gives whole rows out, with memory bounded by `capacity` or by one row, whichever is larger.

    Rows point into the buffer: they are good until the next call. But a chunk with a field that fills more than half
    of the buffer gives it away for ever, so that a huge value can be used without a copy.
    """

    def __init__(self, width: int, *, framed: bool, capacity: int) -> None:
        self._width = width
        self._framed = framed
        self._capacity = capacity
        self._buf = np.empty(capacity, dtype=np.uint8)
        self._at = 0
        self._end = 0
        self._needed = 1
        self._base = 0
        self._lead = -1
        self._shape_tables()
        self.finished = False
        """The trailer was seen."""

    def _shape_tables(self) -> None:
        # A row takes at least 2 + 4 · width bytes; more rows than that cannot come out of one buffer, and more than
        # 64 Ki at once brings nothing.
        fit = self._capacity // (2 + 4 * self._width + (FRAME_HEADER if self._framed else 0)) + 1
        limit = max(1, min(65_536, fit))
        self._starts = np.empty((self._width, limit), dtype=np.int32)
        self._lengths = np.empty((self._width, limit), dtype=np.int32)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        self._make_room()
        return self._buf.data[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were put into `room()`."""
        self._end += count

    @property
    def starved(self) -> bool:
        """Whether more bytes are needed before there can be another row."""
        return self._end - self._at < self._needed

    @property
    def full(self) -> bool:
        return self._end == len(self._buf)

    @property
    def pending(self) -> memoryview:
        """Bytes that were received and not yet walked."""
        return self._buf.data[self._at : self._end]

    @property
    def position(self) -> int:
        """How far the stream has been walked."""
        return self._base + self._at

    def need(self, count: int) -> None:
        """So many bytes must be at hand before it is worth looking again."""
        self._needed = count

    def skip(self, count: int) -> None:
        """Pass over bytes that the caller has dealt with (messages other than rows)."""
        self._at += count
        self._needed = 1

    def rows(self) -> Rows | None:
        """The whole rows at hand; None when bytes are missing, the stream is over or a foreign message stands first."""
        if self.finished or (self._lead < 0 and not self._take_header()):
            return None
        status, at, count, needed = walk_rows(
            self._buf, self._at, self._end, self._lead, self._framed, self._starts, self._lengths
        )
        if status < 0:
            raise BadBytesError(REASONS[status], position=self._base + at, context={"row_in_chunk": int(count)})
        if count or status == TRAILER:
            self._lead = 0
        self._at, self._needed = int(at), max(1, int(needed))
        self.finished = status == TRAILER
        if count == 0:
            return None
        found = Rows(self._buf, self._starts[:, :count], self._lengths[:, :count], self._base)
        if 2 * int(found.lengths.max(initial=0)) > len(self._buf):
            self._move_to(np.empty(max(self._capacity, self._end - self._at), dtype=np.uint8))
        return found

    def _take_header(self) -> bool:
        frame = FRAME_HEADER if self._framed else 0
        have = self._end - self._at
        self._needed = frame + HEADER_BYTES
        if self._framed and have and self._buf[self._at] != ord("d"):
            self._needed = 1
            return False
        if have < self._needed:
            return False
        start = self._at + frame
        extension = read_header(self._buf[start : start + HEADER_BYTES].tobytes(), self._base + start)
        self._needed += extension
        if have < self._needed:
            return False
        if self._framed:
            self._lead = HEADER_BYTES + extension
        else:
            self._at += HEADER_BYTES + extension
            self._lead = 0
        self._needed = 1
        return True

    def _make_room(self) -> None:
        """Move the unfinished row to the front, or to a larger buffer when it fills this one."""
        have = self._end - self._at
        if self._end < len(self._buf) and self._at == 0 and self._needed <= len(self._buf):
            return
        size = self._capacity
        while size <= have:
            size *= 2
        # Grow as bytes arrive, not at a length word's bidding: a damaged one may ask for a gigabyte.
        if have >= self._capacity // 2 and self._needed > size:
            size = min(max(size * 2, self._capacity), max(self._needed, size))
        if size != len(self._buf):
            self._move_to(np.empty(size, dtype=np.uint8))
        elif self._at:
            self._buf[:have] = self._buf[self._at : self._end].copy()
            self._base += self._at
            self._at, self._end = 0, have

    def _move_to(self, buf: npt.NDArray[np.uint8]) -> None:
        have = self._end - self._at
        buf[:have] = self._buf[self._at : self._end]
        self._base += self._at
        self._buf, self._at, self._end = buf, 0, have
