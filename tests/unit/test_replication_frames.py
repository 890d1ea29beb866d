"""The replication stream cut into transactions: at every byte, in every buffer, and refused where it must be."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from walrelay.errors import BadBytesError
from walrelay.wire.pgoutput import MessageWalker
from walrelay.wire.replication import (
    COMMIT_LSN,
    END_LSN,
    EPOCH_MICROS,
    XID,
    Committed,
    OtherFrame,
    Part,
    RolledBack,
    StreamCutter,
    Transaction,
    WholeTransactions,
)


def frame(message: bytes) -> bytes:
    return b"d" + struct.pack(">i", 29 + len(message)) + b"w" + struct.pack(">qqq", 1, 9000, 0) + message


def keepalive(end: int, *, reply: bool = False) -> bytes:
    return b"d" + struct.pack(">icqqb", 22, b"k", end, 5, reply)


def begin(lsn: int, xid: int = 7) -> bytes:
    return frame(b"B" + struct.pack(">qqI", lsn, 11, xid))


def commit(lsn: int, *, end: int | None = None, flags: int = 0) -> bytes:
    return frame(b"C" + struct.pack(">bqqq", flags, lsn, lsn + 10 if end is None else end, 11))


def insert(size: int = 4, xid: bytes = b"") -> bytes:
    return frame(b"I" + xid + struct.pack(">I", 1) + b"N\0\1b" + struct.pack(">i", size) + b"x" * size)


def message(size: int = 4) -> bytes:
    return frame(b"M\0" + struct.pack(">q", 3) + b"app\0" + struct.pack(">i", size) + b"y" * size)


def start_block(xid: int) -> bytes:
    return frame(b"S" + struct.pack(">IB", xid, 1))


END_BLOCK = frame(b"E")


def stream_commit(xid: int, lsn: int) -> bytes:
    return frame(b"c" + struct.pack(">Ibqqq", xid, 0, lsn, lsn + 10, 11))


def stream_abort(xid: int, subxid: int, rest: bytes = b"") -> bytes:
    return frame(b"A" + struct.pack(">II", xid, subxid) + rest)


def other(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


@dataclass(frozen=True)
class Whole:
    """A WholeTransactions that has been copied out of its buffer."""

    frames: bytes
    lsns: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Parted:
    xid: int
    streamed: bool
    frames: bytes


Kept = Whole | Parted | Committed | RolledBack | OtherFrame


def taken(cutter: StreamCutter) -> list[Kept]:
    """All pieces, copied while they are good."""
    kept: list[Kept] = []
    for piece in cutter.pieces():
        match piece:
            case WholeTransactions():
                txns = [piece.txns[row].tolist() for row in (COMMIT_LSN, END_LSN, XID)]
                kept.append(Whole(piece.buf[piece.start : piece.end].tobytes(), tuple(zip(*txns, strict=True))))
            case Part():
                kept.append(Parted(piece.xid, piece.streamed, bytes(piece.frames)))
            case _:
                kept.append(piece)
    return kept


def feed(cutter: StreamCutter, data: bytes) -> list[Kept]:
    """Everything, as much at once as there is room for."""
    kept, at = [], 0
    while at < len(data):
        room = cutter.room()
        count = min(len(room), len(data) - at)
        assert count > 0
        room[:count] = data[at : at + count]
        cutter.received(count)
        at += count
        kept += taken(cutter)
    return kept


def joined(pieces: list[Kept]) -> list[Kept]:
    """Parts of a transaction that follow each other as one, and whole transactions as well."""
    made: list[Kept] = []
    for piece in pieces:
        last = made[-1] if made else None
        match last, piece:
            case Parted(), Parted() if last.xid == piece.xid and last.streamed == piece.streamed:
                made[-1] = Parted(piece.xid, piece.streamed, last.frames + piece.frames)
            case Whole(), Whole():
                made[-1] = Whole(last.frames + piece.frames, last.lsns + piece.lsns)
            case _:
                made.append(piece)
    return made


ONE = begin(100) + insert() + commit(100)
TWO = begin(200, 8) + insert(30) + insert(0) + commit(200)
STREAMED = (
    start_block(50) + insert(9, b"\0\0\0\x32") + END_BLOCK
    + ONE
    + start_block(50) + insert(9, b"\0\0\0\x33") + END_BLOCK + stream_abort(50, 51)
    + stream_commit(50, 300)
)  # fmt: skip
STREAMED_PIECES = [
    Parted(50, True, insert(9, b"\0\0\0\x32")),
    Whole(ONE, ((100, 110, 7),)),
    Parted(50, True, insert(9, b"\0\0\0\x33")),
    RolledBack(50, 51),
    Committed(Transaction(300, 310, 11 + EPOCH_MICROS, 50), streamed=True),
]


def test_whole_transactions_come_in_one_piece() -> None:
    cutter = StreamCutter(4096)
    assert feed(cutter, ONE + TWO) == [Whole(ONE + TWO, ((100, 110, 7), (200, 210, 8)))]
    assert not cutter.in_transaction
    assert cutter.server_end == 9000


@pytest.mark.parametrize("capacity", [4096, 1000, 300])
def test_a_stream_cut_at_every_byte_gives_the_same_pieces(capacity: int) -> None:
    data = ONE + keepalive(77) + STREAMED + TWO
    wanted = [
        Whole(ONE + keepalive(77), ((100, 110, 7),)),
        *STREAMED_PIECES,
        Whole(TWO, ((200, 210, 8),)),
    ]
    for at in range(len(data)):
        cutter = StreamCutter(capacity)
        pieces = feed(cutter, data[:at]) + feed(cutter, data[at:])
        assert joined(pieces) == wanted, at
        assert not cutter.in_transaction


def test_byte_by_byte_nothing_comes_before_the_commit_is_whole() -> None:
    cutter = StreamCutter(4096)
    for at in range(len(ONE) - 1):
        assert feed(cutter, ONE[at : at + 1]) == []
        assert cutter.in_transaction
    assert feed(cutter, ONE[-1:]) == [Whole(ONE, ((100, 110, 7),))]


def test_it_knows_when_it_is_starved() -> None:
    cutter = StreamCutter(4096)
    assert cutter.starved
    feed(cutter, begin(100)[:6])
    cutter.room()[:1] = begin(100)[6:7]
    cutter.received(1)
    assert cutter.starved, "the rest of the frame is missing"
    feed(cutter, begin(100)[7:])
    assert cutter.starved and cutter.in_transaction, "an unfinished transaction says nothing"


@pytest.mark.parametrize("size", [65, 200, 5000])
def test_a_frame_larger_than_the_buffer_in_a_transaction_goes_out_in_parts(size: int) -> None:
    big = begin(100) + insert() + insert(size) + insert(1)
    cutter = StreamCutter(64)
    assert joined(feed(cutter, big + commit(100) + TWO[:1])) == [
        Parted(7, False, big),
        Committed(Transaction(100, 110, 11 + EPOCH_MICROS, 7), streamed=False),
    ]


def test_a_transaction_larger_than_the_buffer_goes_out_in_parts_and_the_next_are_whole_again() -> None:
    big = begin(100) + insert(50) * 20
    cutter = StreamCutter(1000)
    assert joined(feed(cutter, ONE + big + commit(100) + TWO)) == [
        Whole(ONE, ((100, 110, 7),)),
        Parted(7, False, big),
        Committed(Transaction(100, 110, 11 + EPOCH_MICROS, 7), streamed=False),
        Whole(TWO, ((200, 210, 8),)),
    ]
    assert len(cutter.room()) <= 1000


def test_a_frame_larger_than_the_buffer_in_a_block_goes_out_in_parts() -> None:
    tag = b"\0\0\0\x32"
    cutter = StreamCutter(100)
    data = start_block(50) + insert(3, tag) + insert(700, tag) + insert(4, tag) + END_BLOCK + stream_commit(50, 300)
    assert joined(feed(cutter, data)) == [
        Parted(50, True, insert(3, tag) + insert(700, tag) + insert(4, tag)),
        Committed(Transaction(300, 310, 11 + EPOCH_MICROS, 50), streamed=True),
    ]
    assert len(cutter.room()) <= 100


def test_a_message_larger_than_the_buffer_between_transactions_makes_it_grow_and_shrink_again() -> None:
    cutter = StreamCutter(64)
    assert feed(cutter, message(1000)) == [Whole(message(1000), ())]
    assert len(cutter.room()) <= 64
    assert not cutter.in_transaction


def test_every_piece_is_within_the_capacity_however_large_the_transaction() -> None:
    cutter, largest = StreamCutter(256), 0
    data = begin(100) + insert(100) * 50 + insert(20_000) + commit(100)
    for piece in feed(cutter, data):
        largest = max(largest, len(piece.frames) if isinstance(piece, Parted | Whole) else 0)
        assert len(cutter.room()) <= 256
    assert largest <= 256


@pytest.mark.parametrize("most", [1, 2, 3])
def test_more_transactions_than_the_table_holds_come_in_several_pieces(most: int) -> None:
    data = b"".join(begin(100 * n, n) + insert() + commit(100 * n) for n in range(1, 8))
    pieces = feed(StreamCutter(1_000_000, most_transactions=most), data)
    sizes = [len(piece.lsns) for piece in pieces if isinstance(piece, Whole)]
    assert sizes == [most] * (7 // most) + ([7 % most] if 7 % most else [])
    assert joined(pieces) == [Whole(data, tuple((100 * n, 100 * n + 10, n) for n in range(1, 8)))]


def test_a_table_that_is_full_inside_a_read_keeps_the_unfinished_transaction() -> None:
    cutter = StreamCutter(1_000_000, most_transactions=1)
    assert feed(cutter, ONE + begin(200, 8) + insert()) == [Whole(ONE, ((100, 110, 7),))]
    assert cutter.in_transaction
    assert feed(cutter, commit(200)) == [Whole(begin(200, 8) + insert() + commit(200), ((200, 210, 8),))]


def test_a_keepalive_in_a_transaction_is_answered_and_stays_with_it() -> None:
    cutter = StreamCutter(4096)
    assert not cutter.take_reply_wanted()
    assert feed(cutter, begin(100) + insert() + keepalive(9500, reply=True)) == []
    assert cutter.take_reply_wanted() and not cutter.take_reply_wanted()
    assert (cutter.keepalive_end, cutter.server_end, cutter.in_transaction) == (9500, 9500, True)
    [piece] = feed(cutter, insert() + commit(100))
    assert isinstance(piece, Whole)
    assert piece.frames == begin(100) + insert() + keepalive(9500, reply=True) + insert() + commit(100)
    buf = np.frombuffer(bytearray(piece.frames), np.uint8)
    walked = [events.ordinals.tolist() for events in MessageWalker().walk_whole(buf, 0, len(buf), 0)]
    assert walked == [[0, 1]], "and the walk passes it over"


def test_a_keepalive_in_a_block_and_in_a_large_transaction_is_answered() -> None:
    cutter = StreamCutter(64)
    feed(cutter, start_block(50) + keepalive(5, reply=True) + insert(200, b"\0\0\0\x32") + keepalive(6) + END_BLOCK)
    assert (cutter.take_reply_wanted(), cutter.keepalive_end) == (True, 6)
    feed(cutter, begin(100) + insert(200) + keepalive(7, reply=True) + insert(200) + commit(100))
    assert (cutter.take_reply_wanted(), cutter.keepalive_end) == (True, 7)


def test_keepalives_alone_leave_nothing_in_flight() -> None:
    cutter = StreamCutter(64)
    for end in range(1, 50):
        assert all(piece.lsns == () for piece in feed(cutter, keepalive(end)) if isinstance(piece, Whole))
        assert (cutter.keepalive_end, cutter.in_transaction) == (end, False)


@pytest.mark.parametrize("place", ["outside", "inside", "block", "large"])
@pytest.mark.parametrize("frame_", [other(b"c"), other(b"E", b"SERROR\0C57P01\0\0"), other(b"N", b"\0")])
def test_another_message_is_taken_out_of_the_middle(frame_: bytes, place: str) -> None:
    tag = b"\0\0\0\x32"
    before, after, capacity = {
        "outside": (ONE, TWO, 4096),
        "inside": (begin(100) + insert(), insert() + commit(100), 4096),
        "block": (start_block(50) + insert(9, tag), insert(8, tag) + END_BLOCK, 4096),
        "large": (begin(100) + insert(300), insert(200) + commit(100), 128),
    }[place]
    without = joined(feed(StreamCutter(capacity), before + after))
    for at in range(len(frame_)):
        cutter = StreamCutter(capacity)
        pieces = feed(cutter, before + frame_[:at]) + feed(cutter, frame_[at:] + after)
        found = [piece for piece in pieces if isinstance(piece, OtherFrame)]
        assert found == [OtherFrame(frame_[:1], frame_[5:])]
        assert joined([piece for piece in pieces if not isinstance(piece, OtherFrame)]) == without


def test_a_begin_without_commit_gives_nothing_and_is_in_flight() -> None:
    cutter = StreamCutter(4096)
    assert feed(cutter, ONE + begin(200) + insert()) == [Whole(ONE, ((100, 110, 7),))]
    assert cutter.in_transaction


def test_an_empty_block_still_opens_its_transaction() -> None:
    assert feed(StreamCutter(4096), start_block(50) + END_BLOCK) == [Parted(50, True, b"")]


def test_aborts_come_short_and_long() -> None:
    data = stream_abort(50, 51) + stream_abort(50, 50, bytes(16))
    assert feed(StreamCutter(4096), data) == [RolledBack(50, 51), RolledBack(50, 50)]


def test_transaction_numbers_are_unsigned() -> None:
    last = 2**32 - 1
    assert feed(StreamCutter(4096), begin(100, last) + commit(100)) == [
        Whole(begin(100, last) + commit(100), ((100, 110, last),))
    ]
    assert feed(StreamCutter(64), begin(100, last) + insert(100) + commit(100))[-1] == Committed(
        Transaction(100, 110, 11 + EPOCH_MICROS, last), streamed=False
    )
    assert feed(StreamCutter(4096), start_block(last)) == [Parted(last, True, b"")]


NEGATIVE = struct.pack(">q", -5)
BAD = {
    "a length below four": b"d\0\0\0\3w" + bytes(40),
    "a negative length": b"d\xff\xff\xff\xffw" + bytes(40),
    "a length of more than a gigabyte": b"d\x7f\xff\xff\xffw" + bytes(40),
    "neither data nor keepalive": b"d\0\0\0\x1dx" + bytes(40),
    "data without a message": b"d\0\0\0\x1dw" + bytes(24),
    "a short keepalive": b"d" + struct.pack(">icqq", 21, b"k", 1, 1),
    "a long keepalive": b"d" + struct.pack(">icqqbb", 23, b"k", 1, 1, 0, 0),
    "an unknown message": begin(100) + frame(b"?"),
    "prepare, which is never asked for": frame(b"P" + bytes(40)),
    "a short begin": frame(b"B" + bytes(19)),
    "a begin at no position": begin(0) + commit(0),
    "a begin at a negative position": begin(-100) + commit(-100),
    "begin in a transaction": begin(100) + begin(200),
    "commit outside": commit(100),
    "commit of another": begin(100) + commit(101),
    "commit that ends before it begins": begin(100) + commit(100, end=100),
    "commit with flags": begin(100) + commit(100, flags=1),
    "a long commit": begin(100) + frame(b"C" + struct.pack(">bqqqb", 0, 100, 110, 11, 0)),
    "commit of another, large": begin(100) + insert(500) + commit(101),
    "commit with flags, large": begin(100) + insert(500) + commit(100, flags=1),
    "a change outside": insert(),
    "a relation outside": frame(b"R" + bytes(20)),
    "a block in a transaction": begin(100) + start_block(50),
    "a block in a block": start_block(50) + start_block(51),
    "the end of no block": END_BLOCK,
    "the end of a block in a transaction": begin(100) + END_BLOCK,
    "commit in a block": start_block(50) + commit(100),
    "stream commit in a block": start_block(50) + stream_commit(50, 100),
    "abort in a transaction": begin(100) + stream_abort(50, 50),
    "a short block start": frame(b"S\0\0\0\1"),
    "a long block end": start_block(50) + frame(b"E\0"),
    "a short stream commit": frame(b"c" + bytes(20)),
    "a stream commit at a negative position": frame(b"c" + struct.pack(">Ib", 5, 0) + NEGATIVE + bytes(16)),
    "a stream commit with flags": frame(b"c" + struct.pack(">Ibqqq", 50, 1, 100, 110, 11)),
    "an abort of a wrong length": frame(b"A" + bytes(12)),
    "another message with an impossible length": b"E\0\0\0\1" + bytes(50),
    "another message that is too large": b"N\0\1\0\0" + bytes(50),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("capacity", [128, 4096])
def test_bad_frames_are_refused_with_their_position(what: str, capacity: int) -> None:
    with pytest.raises(BadBytesError) as failure:
        feed(StreamCutter(capacity), ONE + BAD[what])
    assert len(ONE) <= failure.value.position <= len(ONE) + len(BAD[what])


def test_a_frame_that_is_too_large_for_its_kind_is_not_waited_for() -> None:
    huge = b"d" + struct.pack(">i", 100_000) + b"w" + bytes(24)
    for kind in (b"C", b"B", b"E", b"?", b"S"):
        with pytest.raises(BadBytesError):
            feed(StreamCutter(256), start_block(50) + huge + kind + bytes(300))
