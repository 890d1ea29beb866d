"""Samples of transaction numbers: what of the log a copy need not look at, and what its xids still tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from walrelay.log.failures import LogDamagedError
from walrelay.log.storage import open_storage
from walrelay.log.xids import (
    MOST_SAMPLES,
    XIDS,
    XidSample,
    XidsUnknownError,
    catch_up_start,
    forget_samples,
    put_samples,
    read_samples,
    thinned,
)
from walrelay.model.lsn import Lsn
from walrelay.model.visibility import HALF_EPOCH, VisibleTransactions

START = Lsn(100)
FLOOR = XidSample(START, 0, 700)


def sample(lsn: int, below: int, least: int) -> XidSample:
    return XidSample(Lsn(lsn), below, least)


def test_a_copy_begins_at_the_latest_sample_whose_transactions_were_all_finished() -> None:
    samples = [FLOOR, sample(200, 800, 790), sample(300, 900, 880), sample(400, 1000, 990)]
    assert catch_up_start(samples, START, "950:960:955") == Lsn(300)
    assert catch_up_start(samples, START, "900:960:900") == Lsn(300), "below 900 is all finished"
    assert catch_up_start(samples, START, "899:960:899") == Lsn(200)
    assert catch_up_start(samples, START, "2000:2000:") == Lsn(400)
    assert catch_up_start(samples, START, "750:960:750") == START, "by the floor"


def test_a_transaction_whose_record_is_in_the_wal_but_not_yet_visible_is_not_skipped() -> None:
    """It ended before the sample's position with an xid just below the sample's own, and waits for a standby."""
    samples = [FLOOR, sample(300, 901, 850)]
    waits = "900:950:900"
    assert not VisibleTransactions.parse(waits).sees(900)
    assert catch_up_start(samples, START, waits) == START


def test_what_retention_removed_needs_no_sample() -> None:
    samples = [sample(200, 800, 790), sample(300, 900, 880)]
    assert catch_up_start(samples, Lsn(250), "10:10:") == Lsn(250), "nothing of the log ends before 200"
    with pytest.raises(XidsUnknownError):
        catch_up_start(samples, Lsn(150), "10:10:")


def test_xids_that_are_too_old_to_be_told_apart_are_refused_by_name() -> None:
    far = 700 + HALF_EPOCH
    assert catch_up_start([FLOOR], START, f"{far - 1}:{far - 1}:") == START
    with pytest.raises(XidsUnknownError, match="older than the copy") as caught:
        catch_up_start([FLOOR], START, f"{far}:{far}:")
    assert caught.value.code == "log.xids_unknown" and caught.value.retryable


def test_a_transaction_of_another_age_is_left_out_by_its_position() -> None:
    """2³¹ and some xids ago: its 32 bits alone would make it one that is still to come."""
    now = 800 + HALF_EPOCH + 5_000
    visible = f"{now}:{now}:"
    assert not VisibleTransactions.parse(visible).sees(800), "so it would be applied twice"
    samples = [FLOOR, sample(300, 900, 880), sample(400, now - 10, now - 20)]
    assert catch_up_start(samples, START, visible) == Lsn(400)


def test_without_a_sample_nobody_knows() -> None:
    with pytest.raises(XidsUnknownError, match="does not say"):
        catch_up_start([], START, "10:10:")


def test_few_samples_are_kept_and_always_the_one_before_the_start() -> None:
    many = [sample(100 * n, n, n) for n in range(10 * MOST_SAMPLES)]
    kept: list[XidSample] = []
    for one in many:
        kept = thinned([*kept, one], Lsn(0))
    assert len(kept) <= MOST_SAMPLES and kept[0] == many[0] and kept[-20:] == many[-20:]
    start = Lsn(many[-100].lsn + 1)
    kept = thinned(kept, start)
    assert kept[0].lsn <= start < kept[1].lsn


def test_they_are_kept_in_the_log(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    assert read_samples(storage) == []
    samples = [FLOOR, sample(300, 1 << 40, 900)]
    put_samples(storage, samples)
    assert read_samples(storage) == samples
    forget_samples(storage, Lsn(299))
    assert read_samples(storage) == [FLOOR]
    storage.put(XIDS, b'[["0/1", 2]]')
    with pytest.raises(LogDamagedError, match="damaged"):
        read_samples(storage)
