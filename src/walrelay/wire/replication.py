"""The replication stream's frames: cut received bytes into whole transactions, without looking into the rows.

On the wire every message is a CopyData frame: 'd', a length, then 'w' (25 bytes of header and one pgoutput message) or
'k' (a keepalive). The cutter finds where transactions begin and end. What belongs to whole transactions is given out in
one piece; a transaction that is streamed while it runs, or is larger than the buffer, is given out in parts, as bytes,
to be kept until it commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from walrelay.errors import BadBytesError
from walrelay.wire.copy_binary import MAX_MESSAGE
from walrelay.wire.kernel import be32, be64, kernel

FRAME_HEADER = 5
MESSAGE_AT = 30
"""A pgoutput message starts here in its frame: 'd', length, 'w', two positions, a time."""
EPOCH_MICROS = 946_684_800_000_000
"""2000-01-01, from which Postgres counts, in µs since 1970."""

OUTSIDE, INSIDE, BLOCK, LARGE = 0, 1, 2, 3
"""Where the walk stands: between transactions, in one, in a block of a streamed one, in one too large to hold."""
MORE, STOP, OTHER, TABLE_FULL = 0, 1, 2, 3
BAD_FRAME, BAD_KEEPALIVE, BAD_BEGIN, BAD_COMMIT, BAD_PLACE, BAD_MESSAGE = -1, -2, -3, -4, -5, -6
REASONS = {
    BAD_FRAME: "a message with an impossible length",
    BAD_KEEPALIVE: "a keepalive of the wrong length",
    BAD_BEGIN: "a malformed Begin",
    BAD_COMMIT: "a Commit that does not fit its Begin",
    BAD_PLACE: "a message that cannot stand at this place of a transaction",
    BAD_MESSAGE: "an unknown message in the replication stream",
}
COMMIT_LSN, END_LSN, COMMIT_TIME, XID = 0, 1, 2, 3
SERVER_END, KEEPALIVE_END, REPLY_WANTED, SEND_TIME = 0, 1, 2, 3


@kernel
def walk_frames(buf: Any, at: Any, end: Any, mode: Any, txns: Any, count: Any, facts: Any) -> Any:
    """Walk whole frames from `at`: (status, where it stopped, end of the last whole transaction, mode, transactions,
    bytes the unfinished frame needs).

    `txns` (4 × n) takes each transaction's commit and end LSN, time and xid. Stops before messages of streaming, and in
    a large transaction before its Commit.
    """
    at = np.int64(at)
    end = np.int64(end)
    ready = np.int64(-1)
    while True:
        if at < end and buf[at] != 100:
            return OTHER, at, ready, mode, count, np.int64(0)
        if at + 6 > end:
            return MORE, at, ready, mode, count, np.int64(6)
        size = np.int64(be32(buf, at + 1))
        if size < 5 or size > MAX_MESSAGE:
            return BAD_FRAME, at, ready, mode, count, np.int64(0)
        after = at + 1 + size
        if after > end:
            return MORE, at, ready, mode, count, 1 + size
        if buf[at + 5] == 107:  # k
            if size != 22:
                return BAD_KEEPALIVE, at, ready, mode, count, np.int64(0)
            facts[SERVER_END] = max(facts[SERVER_END], be64(buf, at + 6))
            facts[KEEPALIVE_END] = max(facts[KEEPALIVE_END], be64(buf, at + 6))
            facts[SEND_TIME] = be64(buf, at + 14) + EPOCH_MICROS
            if buf[at + 22] != 0:
                facts[REPLY_WANTED] = 1
            at = after
            if mode == OUTSIDE:
                ready = at
            continue
        if buf[at + 5] != 119 or size < 30:  # w
            return BAD_FRAME, at, ready, mode, count, np.int64(0)
        facts[SERVER_END] = max(facts[SERVER_END], be64(buf, at + 14))
        facts[SEND_TIME] = be64(buf, at + 22) + EPOCH_MICROS
        message = at + 30
        kind = buf[message]
        length = after - message
        if kind == 66:  # B
            if mode != OUTSIDE:
                return BAD_PLACE, at, ready, mode, count, np.int64(0)
            if length != 21:
                return BAD_BEGIN, at, ready, mode, count, np.int64(0)
            if count == txns.shape[1]:
                return TABLE_FULL, at, ready, mode, count, np.int64(0)
            txns[COMMIT_LSN, count] = be64(buf, message + 1)
            if txns[COMMIT_LSN, count] <= 0:
                return BAD_BEGIN, at, ready, mode, count, np.int64(0)
            txns[COMMIT_TIME, count] = be64(buf, message + 9) + EPOCH_MICROS
            txns[XID, count] = np.int64(be32(buf, message + 17)) & 0xFFFFFFFF
            mode = INSIDE
        elif kind == 67:  # C
            if mode == LARGE:
                return STOP, at, ready, mode, count, np.int64(0)
            if mode != INSIDE:
                return BAD_PLACE, at, ready, mode, count, np.int64(0)
            commit = be64(buf, message + 2) if length == 26 else np.int64(-1)
            if length != 26 or buf[message + 1] != 0 or commit != txns[COMMIT_LSN, count]:
                return BAD_COMMIT, at, ready, mode, count, np.int64(0)
            txns[END_LSN, count] = be64(buf, message + 10)
            if txns[END_LSN, count] <= commit:
                return BAD_COMMIT, at, ready, mode, count, np.int64(0)
            count += 1
            mode = OUTSIDE
        elif kind == 83 or kind == 99 or kind == 65:  # S, c, A
            if mode != OUTSIDE:
                return BAD_PLACE, at, ready, mode, count, np.int64(0)
            return STOP, at, ready, mode, count, np.int64(0)
        elif kind == 69:  # E
            if mode != BLOCK:
                return BAD_PLACE, at, ready, mode, count, np.int64(0)
            return STOP, at, ready, mode, count, np.int64(0)
        elif kind == 73 or kind == 85 or kind == 68 or kind == 84 or kind == 82 or kind == 89 or kind == 79:
            # I, U, D, T, R, Y, O stand in transactions only; M, below, anywhere.
            if mode == OUTSIDE:
                return BAD_PLACE, at, ready, mode, count, np.int64(0)
        elif kind != 77:
            return BAD_MESSAGE, at, ready, mode, count, np.int64(0)
        at = after
        if mode == OUTSIDE:
            ready = at


@dataclass(frozen=True, slots=True)
class Transaction:
    """One committed transaction. `xid` is 32-bit, as Begin has it; `commit_time` is in µs since 1970."""

    commit_lsn: int
    end_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class WholeTransactions:
    """Frames of whole transactions, and of messages between them. `txns` is 4 × n: see `COMMIT_LSN` and so on."""

    buf: npt.NDArray[np.uint8]
    start: int
    end: int
    txns: npt.NDArray[np.int64]
    base: int
    """The place of buf's first byte in the stream, for errors."""

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a transaction that is not yet committed. They are good until the cutter is next asked."""

    xid: int
    streamed: bool
    frames: memoryview


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction whose parts came before is committed."""

    transaction: Transaction
    streamed: bool


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A streamed transaction, or (`subxid` differs) what a savepoint of it did, is undone."""

    xid: int
    subxid: int


@dataclass(frozen=True, slots=True)
class OtherFrame:
    """A message that is not CopyData: an error, a notice, the end of the stream."""

    kind: bytes
    body: bytes


Piece = WholeTransactions | Part | Committed | RolledBack | OtherFrame


class StreamCutter:
    """Takes bytes in and gives pieces out. Memory: one buffer of `capacity`, whatever the size of a transaction."""

    def __init__(self, capacity: int = 4 * 1024 * 1024, most_transactions: int = 65_536) -> None:
        self._capacity = capacity
        self._buf = np.empty(capacity, dtype=np.uint8)
        self._at = 0  # the first byte not yet given out
        self._walked = 0
        self._end = 0
        self._base = 0
        self._needed = 1
        self._skip = 0  # bytes of a frame whose beginning was given out as a part
        self._mode = OUTSIDE
        self._txns = np.zeros((4, most_transactions), dtype=np.int64)
        self._count = 0
        self._xid = 0
        self._facts = np.zeros(4, dtype=np.int64)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty once all pieces were taken."""
        return self._buf.data[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    @property
    def starved(self) -> bool:
        """Whether more bytes are needed before anything can come out."""
        return self._end - self._walked < self._needed

    @property
    def full(self) -> bool:
        return self._end == len(self._buf)

    @property
    def in_transaction(self) -> bool:
        """Whether bytes of an unfinished transaction, or of an unfinished frame, are held here."""
        return self._mode != OUTSIDE or self._end != self._at

    @property
    def server_end(self) -> int:
        """The server's end of WAL as it last told us."""
        return int(self._facts[SERVER_END])

    @property
    def keepalive_end(self) -> int:
        """How far the server had decoded when it last said so in a keepalive; all before that was sent."""
        return int(self._facts[KEEPALIVE_END])

    @property
    def send_time(self) -> int:
        """The server's clock at its last message, µs since 1970."""
        return int(self._facts[SEND_TIME])

    def take_reply_wanted(self) -> bool:
        wanted = bool(self._facts[REPLY_WANTED])
        self._facts[REPLY_WANTED] = 0
        return wanted

    def pieces(self) -> Iterator[Piece]:
        """What can be given out now, in the order of the stream. Take all before receiving more."""
        while True:
            if self._skip:
                count = min(self._skip, self._end - self._at)
                if count:
                    yield self._part(self._at + count)
                    self._skip -= count
                self._walked, self._needed = self._at, 1
                if self._skip:
                    break
            status, at, ready, mode, count, needed = walk_frames(
                self._buf, self._walked, self._end, self._mode, self._txns, self._count, self._facts
            )
            if status < 0:
                raise BadBytesError(REASONS[status], position=self._base + int(at))
            self._walked, self._mode, self._count = int(at), int(mode), int(count)
            self._needed = max(1, int(needed))
            if self._mode in (BLOCK, LARGE):
                if self._walked > self._at:
                    yield self._part(self._walked)
            elif ready > self._at:
                yield self._whole(int(ready))
            if status == STOP:
                yield from self._control()
            elif status == OTHER:
                other = self._other()
                if other is None:
                    break
                yield other
            elif status == MORE and not self._cut():
                break
        self._make_room()

    def _whole(self, ready: int) -> WholeTransactions:
        """Give the buffer away up to `ready` and go on in a new one."""
        txns = self._txns[:, : self._count].copy()
        piece = WholeTransactions(self._buf, self._at, ready, txns, self._base)
        # An unfinished Begin keeps its row in the table, at the front.
        if self._mode == INSIDE:
            self._txns[:, 0] = self._txns[:, self._count]
        self._count = 0
        self._move_to(np.empty(self._capacity, dtype=np.uint8), ready)
        return piece

    def _part(self, until: int) -> Part:
        part = Part(self._xid, self._mode == BLOCK, self._buf.data[self._at : until])
        self._at = until
        return part

    def _control(self) -> Iterator[Piece]:
        """The frame that the walk stopped at: a border of streaming, or the Commit of a large transaction."""
        start = self._walked + MESSAGE_AT
        size = int.from_bytes(self._buf[self._walked + 1 : self._walked + 5], "big")
        after = self._walked + 1 + size
        message = self._buf[start:after].tobytes()
        where = self._base + self._walked
        # The caller may only look at the part after the next step; these frames are small, so they are copied.
        self._at = self._walked = after
        match message[:1], len(message):
            case b"S", 6:
                self._xid = _unsigned(message[1:5])
                self._mode = BLOCK
                yield Part(self._xid, True, memoryview(b""))
            case b"E", 1:
                self._mode = OUTSIDE
            case b"c", 30 if message[5] == 0:
                yield Committed(_commit(_unsigned(message[1:5]), message[6:], where), streamed=True)
            case b"A", 9 | 25:
                yield RolledBack(_unsigned(message[1:5]), _unsigned(message[5:9]))
            case b"C", 26:
                commit = _commit(self._xid, message[2:], where)
                if commit.commit_lsn != int(self._txns[COMMIT_LSN, 0]) or message[1] != 0:
                    raise BadBytesError(REASONS[BAD_COMMIT], position=where)
                self._mode = OUTSIDE
                yield Committed(commit, streamed=False)
            case _:
                raise BadBytesError("a malformed message of a streamed transaction", position=where)

    def _other(self) -> OtherFrame | None:
        """A frame that is not CopyData, when it is whole."""
        have = self._end - self._walked
        if have < FRAME_HEADER:
            self._needed = FRAME_HEADER
            return None
        where = self._base + self._walked
        kind = self._buf[self._walked : self._walked + 1].tobytes()
        size = int.from_bytes(self._buf[self._walked + 1 : self._walked + 5], "big", signed=True)
        if size < 4 or size > self._capacity // 2:
            raise BadBytesError(REASONS[BAD_FRAME], position=where)
        if have < 1 + size:
            self._needed = 1 + size
            return None
        body = self._buf[self._walked + 5 : self._walked + 1 + size].tobytes()
        self._remove(self._walked, self._walked + 1 + size)
        return OtherFrame(kind, body)

    def _remove(self, start: int, end: int) -> None:
        """Take a frame out of the middle of a transaction's bytes."""
        rest = self._end - end
        self._buf[start : start + rest] = self._buf[end : self._end].copy()
        self._end = start + rest
        self._base += end - start

    def _cut(self) -> bool:
        """Whether an unfinished transaction that the buffer cannot hold may now go out in parts."""
        unfinished = self._end - self._walked
        too_long = self._needed > self._capacity and unfinished > MESSAGE_AT
        if self._mode == INSIDE and (too_long or (self.full and self._at == 0)):
            self._mode = LARGE
            self._xid = int(self._txns[XID, self._count])
            self._txns[:, 0] = self._txns[:, self._count]
            self._count = 0
            return True
        if self._mode in (BLOCK, LARGE) and too_long:
            if int(self._buf[self._walked + MESSAGE_AT]) not in b"IUDTRYM" or self._buf[self._walked + 5] != ord("w"):
                raise BadBytesError(REASONS[BAD_FRAME], position=self._base + self._walked)
            self._skip = self._needed
            return True
        return False

    def _make_room(self) -> None:
        """Move what is left to the front; only a long message between transactions makes the buffer grow."""
        if self._at == self._end:
            self._base += self._at
            self._at = self._walked = self._end = 0
        elif self._at and (self.full or self._needed > len(self._buf) - self._walked):
            self._move_to(np.empty(self._capacity, dtype=np.uint8), self._at)
        if self.full:
            self._move_to(np.empty(2 * len(self._buf), dtype=np.uint8), self._at)

    def _move_to(self, buf: npt.NDArray[np.uint8], start: int) -> None:
        have = self._end - start
        if have > len(buf):
            buf = np.empty(have, dtype=np.uint8)
        buf[:have] = self._buf[start : self._end]
        self._base += start
        self._walked -= start
        self._buf, self._at, self._end = buf, 0, have


def _unsigned(four: bytes) -> int:
    return int.from_bytes(four, "big")


def _commit(xid: int, body: bytes, where: int) -> Transaction:
    """From `commit_lsn` on, Commit and Stream Commit are the same."""
    commit_lsn, end_lsn = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")
    if not 0 < commit_lsn < end_lsn < 1 << 63:
        raise BadBytesError(REASONS[BAD_COMMIT], position=where)
    time = int.from_bytes(body[16:24], "big", signed=True) + EPOCH_MICROS
    return Transaction(commit_lsn, end_lsn, time, xid)
