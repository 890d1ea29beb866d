"""Transactions that wait for their commit: within the budget of memory, byte for byte, without what was undone."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from walrelay.capture import spill
from walrelay.capture.spill import OpenTransaction, OpenTransactions
from walrelay.errors import BadBytesError
from walrelay.wire.pgoutput import MessageWalker, part_state
from walrelay.wire.replication import Part


def frame(size: int, fill: bytes = b"x") -> bytes:
    """A frame of `size` bytes."""
    return b"d" + struct.pack(">i", size - 1) + b"w" + fill * (size - 6)


def insert(subxid: int, value: bytes) -> bytes:
    body = b"I" + struct.pack(">II", subxid, 1) + b"N\0\1b" + struct.pack(">i", len(value)) + value
    return b"d" + struct.pack(">i", 29 + len(body)) + b"w" + bytes(24) + body


def part(xid: int, frames: bytes, *, streamed: bool = True) -> Part:
    return Part(xid, streamed, memoryview(frames))


def content(one: OpenTransaction) -> bytes:
    return b"".join(piece.tobytes() for piece in one.pieces())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def opened(tmp_path: Path) -> OpenTransactions:
    return OpenTransactions(tmp_path / "spill", 1000)


def test_small_transactions_stay_in_memory(opened: OpenTransactions, tmp_path: Path) -> None:
    opened.append(part(5, frame(100)))
    opened.append(part(5, frame(60)))
    assert (len(opened), opened.bytes, opened.in_memory, opened.spilled_bytes) == (1, 160, 160, 0)
    assert not (tmp_path / "spill").exists()
    one = opened.take(5, streamed=True)
    assert not one.spilled
    assert content(one) == frame(100) + frame(60)
    assert (len(opened), opened.bytes, opened.taken) == (0, 0, 1)


def test_the_largest_goes_to_disk_when_the_budget_is_used_up(opened: OpenTransactions) -> None:
    opened.append(part(5, frame(300)))
    opened.append(part(6, frame(600)))
    assert opened.spilled_bytes == 0
    opened.append(part(5, frame(200)))
    assert (opened.in_memory, opened.bytes, opened.spilled_bytes) == (500, 1100, 600)
    larger, smaller = opened.take(6, streamed=True), opened.take(5, streamed=True)
    assert (larger.spilled, smaller.spilled) == (True, False)
    assert content(larger) == frame(600)
    assert content(smaller) == frame(300) + frame(200)


def test_memory_is_within_the_budget_at_all_times(opened: OpenTransactions) -> None:
    for number in range(500):
        opened.append(part(number % 7, frame(6 + number % 190)))
        assert opened.in_memory <= 1000
    assert opened.bytes == sum(6 + number % 190 for number in range(500))
    for xid in range(7):
        wanted = b"".join(frame(6 + number % 190) for number in range(500) if number % 7 == xid)
        assert content(opened.take(xid, streamed=True)) == wanted


def test_a_budget_of_nothing_still_works(tmp_path: Path) -> None:
    opened = OpenTransactions(tmp_path, 0)
    for _ in range(3):
        opened.append(part(5, frame(50)))
        assert opened.in_memory == 0
    assert content(opened.take(5, streamed=True)) == frame(50) * 3


def test_content_can_be_read_again_and_what_is_still_in_memory_follows_the_file(opened: OpenTransactions) -> None:
    opened.append(part(5, frame(2000, b"a")))
    opened.append(part(5, frame(100, b"b")))
    one = opened.take(5, streamed=True)
    assert one.in_memory == 100
    assert content(one) == content(one) == frame(2000, b"a") + frame(100, b"b")


def test_spill_files_have_no_name_and_go_with_their_transaction(opened: OpenTransactions, tmp_path: Path) -> None:
    before = open_files()
    for xid in range(4):
        opened.append(part(xid, frame(5000)))
    assert list((tmp_path / "spill").iterdir()) == []
    assert open_files() == before + 4
    opened.take(0, streamed=True).close()
    opened.undo(1, 1)
    assert open_files() == before + 2
    opened.clear()
    assert open_files() == before
    assert (len(opened), opened.bytes, opened.in_memory) == (0, 0, 0)


def test_a_rollback_of_the_whole_leaves_nothing(opened: OpenTransactions) -> None:
    opened.append(part(5, frame(100)))
    opened.append(part(6, frame(100)))
    opened.undo(5, 5)
    assert (len(opened), opened.bytes) == (1, 100)
    empty = opened.take(5, streamed=True)
    assert (content(empty), empty.bytes, empty.streamed) == (b"", 0, True)


def test_a_rollback_of_what_never_came_is_nothing(opened: OpenTransactions) -> None:
    opened.undo(5, 5)
    opened.undo(5, 6)
    assert len(opened) == 0


def test_what_a_savepoint_did_is_passed_over_when_it_was_rolled_back(opened: OpenTransactions) -> None:
    sent = [(5, b"a"), (9, b"b"), (7, b"c"), (2**32 - 1, b"d"), (5, b"e")]
    for subxid, value in sent:
        opened.append(part(5, insert(subxid, value)))
    for subxid in (9, 2**32 - 1, 7, 9):
        opened.undo(5, subxid)
    one = opened.take(5, streamed=True)
    assert one.undone.tolist() == [7, 9, 2**32 - 1]
    kept, state = [], part_state()
    for piece in one.pieces():
        for events in MessageWalker().walk_part(piece, 0, streamed=True, undone=one.undone, state=state):
            places = zip(events.firsts.tolist(), events.ordinals.tolist(), strict=True)
            kept += [(chr(events.buf[events.starts[first]]), ordinal) for first, ordinal in places]
    assert kept == [("a", 0), ("e", 1)], "ordinals are counted without what was undone"


def test_a_savepoint_of_another_transaction_is_not_undone(opened: OpenTransactions) -> None:
    opened.append(part(5, frame(50)))
    opened.append(part(6, frame(50)))
    opened.undo(5, 9)
    assert opened.take(6, streamed=True).undone.tolist() == []
    assert opened.take(5, streamed=True).undone.tolist() == [9]


def test_parts_of_many_transactions_may_come_in_any_order(opened: OpenTransactions) -> None:
    wanted: dict[int, bytes] = {}
    for number in range(200):
        xid, some = (number * 7) % 11, frame(6 + number, bytes([number % 251]))
        # A frame larger than the cutter's buffer comes in several parts, others in between.
        for piece in (some[: number // 2], some[number // 2 :]):
            opened.append(part(xid, piece))
        wanted[xid] = wanted.get(xid, b"") + some
    assert len(opened) == 11
    for xid, some in wanted.items():
        assert content(opened.take(xid, streamed=True)) == some


@pytest.mark.parametrize("memory", [0, 10**9])
@pytest.mark.parametrize("read_bytes", [6, 7, 64, 100, 1000])
def test_pieces_are_whole_frames_also_when_one_is_larger_than_a_read(
    memory: int, read_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "READ_BYTES", read_bytes)
    frames = [frame(size, bytes([size % 251])) for size in (6, 50, 5000, 7, 64, 63, 65, 100, 1, 20_000, 6) if size > 5]
    opened = OpenTransactions(tmp_path, memory)
    for one in frames:
        opened.append(part(5, one))
    pieces = [piece.tobytes() for piece in opened.take(5, streamed=True).pieces()]
    assert b"".join(pieces) == b"".join(frames)
    largest = max(map(len, frames))
    for piece in pieces:
        assert len(piece) <= largest + 2 * read_bytes
        at = 0
        while at < len(piece):
            at += 1 + int.from_bytes(piece[at + 1 : at + 5], "big")
        assert at == len(piece), "a piece ends where a frame ends"


@pytest.mark.parametrize("cut", [1, 3, 5, 6, 49])
@pytest.mark.parametrize("memory", [0, 10**9])
def test_a_transaction_that_ends_in_the_middle_of_a_frame_is_refused(cut: int, memory: int, tmp_path: Path) -> None:
    opened = OpenTransactions(tmp_path, memory)
    opened.append(part(5, frame(80) + frame(50)[:cut]))
    with pytest.raises(BadBytesError):
        content(opened.take(5, streamed=True))


def test_a_transaction_knows_whether_it_was_streamed(opened: OpenTransactions) -> None:
    opened.append(part(5, frame(20), streamed=False))
    opened.append(part(6, frame(20), streamed=True))
    assert not opened.take(5, streamed=False).streamed
    assert opened.take(6, streamed=True).streamed
    assert np.array_equal(opened.take(7, streamed=False).undone, np.empty(0, np.int64))
