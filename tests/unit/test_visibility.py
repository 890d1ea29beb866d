"""A snapshot sees a transaction exactly if `pg_visible_in_snapshot` says so, also where 32-bit xids wrap around."""

from __future__ import annotations

import pytest

from walrelay.model.visibility import VisibleTransactions, visible

EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("xid", "seen"),
    [
        (3, True),
        (699, True),
        (700, False),
        (701, True),
        (704, False),
        (705, True),
        (709, True),
        (710, False),
        (9999, False),
    ],
)
def test_between_xmin_and_xmax_the_list_decides(xid: int, seen: bool) -> None:
    assert visible(xid, "700:710:700,704") is seen


def test_a_snapshot_without_anything_in_progress_sees_all_before_it() -> None:
    assert visible(749, "750:750:")
    assert not visible(750, "750:750:")


def test_the_epoch_of_the_snapshot_is_put_before_the_xid() -> None:
    text = f"{5 * EPOCH + 100}:{5 * EPOCH + 110}:{5 * EPOCH + 105}"
    assert visible(99, text)
    assert visible(104, text)
    assert not visible(105, text)
    assert not visible(110, text)


def test_an_xid_from_before_the_wraparound_belongs_to_the_epoch_before() -> None:
    text = f"{EPOCH + 10}:{EPOCH + 20}:"
    assert visible(EPOCH - 1, text)
    assert visible(EPOCH - 2_000_000_000, text)
    assert visible(10, text)
    assert not visible(20, text)


def test_an_xid_from_after_the_wraparound_belongs_to_the_epoch_after() -> None:
    text = f"{2 * EPOCH - 10}:{2 * EPOCH - 5}:{2 * EPOCH - 7}"
    assert not visible(3, text)
    assert not visible(2_000_000_000, text)
    assert visible(EPOCH - 8, text)
    assert not visible(EPOCH - 7, text)
    assert visible(EPOCH - 6, text)
    assert not visible(EPOCH - 5, text)


def test_a_list_that_spans_the_wraparound_is_kept_apart() -> None:
    text = f"{EPOCH - 4}:{EPOCH + 8}:{EPOCH - 4},{EPOCH + 5}"
    assert [visible(xid, text) for xid in (EPOCH - 5, EPOCH - 4, EPOCH - 3, 4, 5, 6, 8)] == [
        True, False, True, True, False, True, False,
    ]  # fmt: skip


def test_in_a_young_cluster_a_huge_xid_is_still_to_come() -> None:
    assert not visible(3_000_000_000, "700:710:")
    assert VisibleTransactions.parse("700:710:").widen(3_000_000_000) == 3_000_000_000


def test_exactly_half_the_circle_away_counts_as_past() -> None:
    snapshot = VisibleTransactions.parse(f"{9 * EPOCH + 50}:{9 * EPOCH + 50}:")
    assert snapshot.widen(50 + EPOCH // 2) == 9 * EPOCH + 50 - EPOCH // 2
    assert snapshot.widen(49 + EPOCH // 2) == 9 * EPOCH + 49 + EPOCH // 2


@pytest.mark.parametrize("text", ["", "1", "5:6", "5:6:x", "5:6:,", "9:6:", "5:9:4", "5:9:9", "5:9:6,\n", "-5:9:"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a snapshot"):
        visible(5, text)


@pytest.mark.parametrize("xid", [-1, 0, 1, 2, EPOCH, EPOCH + 700])
def test_what_is_no_transaction_of_32_bits_is_refused(xid: int) -> None:
    with pytest.raises(ValueError, match="not the 32-bit xid"):
        visible(xid, "700:710:")
