"""COPY's stream taken out of its messages, for who passes it on and needs to know nothing of the rows in it.

The server makes a message of each row. The bytes within are put one behind the other, also those of a message that has
not come as a whole: memory is bounded by the capacity, however large a row is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from walrelay.errors import BadBytesError
from walrelay.wire.copy_binary import BAD_FRAME, FRAME_HEADER, MAX_MESSAGE, REASONS
from walrelay.wire.kernel import be32, kernel

TRAILER_BYTES = b"\xff\xff"
GOOD = 0


@kernel
def gather(buf: Any, at: Any, end: Any, left: Any, out: Any) -> Any:
    """Put the bytes of CopyData messages into `out`, which is as large as `buf`: (status, where it stopped, bytes put,
    bytes that are left of the last message). `left` bytes at `at` belong to a message that began before."""
    at, end, left, put = np.int64(at), np.int64(end), np.int64(left), np.int64(0)
    while at < end:
        if left == 0:
            if at + 5 > end or buf[at] != 100:
                break
            size = np.int64(be32(buf, at + 1))
            if size < 4 or size > MAX_MESSAGE:
                return BAD_FRAME, at, put, left
            at += 5
            left = size - 4
        take = min(left, end - at)
        out[put : put + take] = buf[at : at + take]
        put += take
        at += take
        left -= take
    return GOOD, at, put, left


class ByteBuffer:
    """Takes bytes off the wire and gives the stream's. What it gives is good until the next call."""

    def __init__(self, capacity: int) -> None:
        self._buf = np.empty(capacity, dtype=np.uint8)
        self._out = np.empty(capacity, dtype=np.uint8)
        self._at = self._end = self._base = self._left = 0
        self._needed = 1
        self._tail = b""

    @property
    def finished(self) -> bool:
        """Whether the stream stands where its trailer has come, if it ends here."""
        return self._left == 0 and self._tail == TRAILER_BYTES

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._at:
            have = self._end - self._at
            self._buf[:have] = self._buf[self._at : self._end].copy()
            self._base += self._at
            self._at, self._end = 0, have
        if self._needed > len(self._buf):  # a message to be looked at as a whole: an error's words, or the like
            grown = np.empty(self._needed, dtype=np.uint8)
            grown[: self._end] = self._buf[: self._end]
            self._buf, self._out = grown, np.empty(self._needed, dtype=np.uint8)
        return self._buf.data[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were put into `room()`."""
        self._end += count

    @property
    def starved(self) -> bool:
        """Whether more bytes are needed before it is worth looking again."""
        return self._end - self._at < self._needed

    @property
    def full(self) -> bool:
        return self._end == len(self._buf)

    @property
    def pending(self) -> memoryview:
        """Bytes that were received and not yet given: a message of another kind stands first, or a part of one."""
        return self._buf.data[self._at : self._end]

    @property
    def position(self) -> int:
        """How far the wire's bytes were looked at."""
        return self._base + self._at

    def need(self, count: int) -> None:
        """So many bytes must be at hand before it is worth looking again."""
        self._needed = count

    def skip(self, count: int) -> None:
        """Pass over bytes that the caller has dealt with."""
        self._at += count
        self._needed = 1

    def rows(self) -> memoryview | None:
        """The stream's bytes at hand; None when bytes are missing, or a foreign message stands first."""
        status, at, put, left = gather(self._buf, self._at, self._end, self._left, self._out)
        if status == BAD_FRAME:
            raise BadBytesError(REASONS[BAD_FRAME], position=self._base + int(at))
        self._at, self._left = int(at), int(left)
        self._needed = 1 if self._left else FRAME_HEADER
        if put == 0:
            return None
        given = self._out.data[: int(put)]
        self._tail = (self._tail + bytes(given[-2:]))[-2:]
        return given
