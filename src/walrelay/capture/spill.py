"""Transactions that have not committed yet, as the bytes they came in: in memory up to a budget, then on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from walrelay.errors import BadBytesError
from walrelay.failpoints import hit
from walrelay.log.failures import named_write
from walrelay.wire.pgoutput import whole_frames
from walrelay.wire.replication import Part

READ_BYTES = 4 * 1024 * 1024


class OpenTransaction:
    """One transaction's bytes, in order, and what of it was rolled back meanwhile."""

    def __init__(self, xid: int, *, streamed: bool) -> None:
        self.xid = xid
        self.streamed = streamed
        self.bytes = 0
        self._undone: set[int] = set()
        self._memory = bytearray()
        self._file: BinaryIO | None = None

    @property
    def in_memory(self) -> int:
        return len(self._memory)

    @property
    def spilled(self) -> bool:
        return self._file is not None

    @property
    def undone(self) -> npt.NDArray[np.int64]:
        """Subtransactions that were rolled back, sorted."""
        return np.array(sorted(self._undone), dtype=np.int64)

    def append(self, frames: memoryview) -> None:
        self._memory += frames
        self.bytes += len(frames)

    def undo(self, subxid: int) -> None:
        self._undone.add(subxid)

    def spill(self, directory: Path) -> None:
        """Move what is in memory to this transaction's file. It has no name, so a crash leaves nothing behind."""
        hit("spill.write")
        with named_write(str(directory)):
            if self._file is None:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                handle = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(handle, "w+b", buffering=0)
            _write_all(self._file, self._memory)
        self._memory = bytearray()

    def pieces(self) -> Iterator[npt.NDArray[np.uint8]]:
        """All bytes again, in pieces of whole frames, each about `READ_BYTES` or one frame, whichever is larger."""
        if self._file is not None:
            self.spill_rest()
        left = self.bytes
        at = 0
        rest = np.empty(0, dtype=np.uint8)
        while left:
            # A frame that was cut off tells how long it is.
            cut = int.from_bytes(rest[1:5].tobytes(), "big") - len(rest) if len(rest) >= 5 else 0
            count = min(left, max(READ_BYTES, cut + 1))
            buf = np.empty(len(rest) + count, dtype=np.uint8)
            buf[: len(rest)] = rest
            self._read_into(at, buf[len(rest) :])
            at, left = at + count, left - count
            whole = int(whole_frames(buf))
            if whole:
                yield buf[:whole]
            rest = buf[whole:]
        if len(rest):
            raise BadBytesError("a transaction that ends in the middle of a message", position=self.bytes)

    def spill_rest(self) -> None:
        """So that all is in one place."""
        if self._file is not None and self._memory:
            _write_all(self._file, self._memory)
            self._memory = bytearray()

    def _read_into(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        if self._file is None:
            out[:] = np.frombuffer(self._memory, dtype=np.uint8)[at : at + len(out)]
            return
        done = 0
        while done < len(out):
            count = os.preadv(self._file.fileno(), [out[done:].data], at + done)
            if count == 0:
                raise BadBytesError("a spilled transaction is shorter than what was written", position=at + done)
            done += count

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._memory = bytearray()


def _write_all(file: BinaryIO, body: bytearray) -> None:
    with memoryview(body) as view:
        done = 0
        while done < len(view):
            done += file.write(view[done:])


class OpenTransactions:
    """All open transactions of a stream. Memory stays within the budget, however many and large they are."""

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._open: dict[int, OpenTransaction] = {}
        self.taken = 0
        """Transactions that came in parts and have committed."""
        self.spilled_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def in_memory(self) -> int:
        return sum(one.in_memory for one in list(self._open.values()))

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in list(self._open.values()))

    def append(self, part: Part) -> None:
        one = self._open.get(part.xid)
        if one is None:
            one = self._open[part.xid] = OpenTransaction(part.xid, streamed=part.streamed)
        one.append(part.frames)
        while self.in_memory > self._memory_bytes:
            largest = max(self._open.values(), key=lambda each: each.in_memory)
            self.spilled_bytes += largest.in_memory
            largest.spill(self._directory)

    def undo(self, xid: int, subxid: int) -> None:
        """A savepoint, or the whole transaction, was rolled back."""
        one = self._open.get(xid)
        if one is None:
            return
        if xid == subxid:
            self._open.pop(xid).close()
        else:
            one.undo(subxid)

    def take(self, xid: int, *, streamed: bool) -> OpenTransaction:
        """The transaction is committed: it is the caller's now. One of which nothing came is empty."""
        self.taken += 1
        return self._open.pop(xid, None) or OpenTransaction(xid, streamed=streamed)

    def clear(self) -> None:
        for one in self._open.values():
            one.close()
        self._open.clear()
