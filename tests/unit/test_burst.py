"""When the first batch after a rest is taken."""

from __future__ import annotations

from walrelay.model.lsn import Lsn
from walrelay.workers.burst import Burst


def test_while_batch_follows_batch_nothing_waits() -> None:
    burst = Burst()
    assert not burst.goes_on(Lsn(10), 0.0, 10.0)
    assert not burst.goes_on(Lsn(20), 10.0, 10.0)


def test_after_a_rest_a_burst_is_waited_for_until_nothing_new_comes() -> None:
    burst = Burst()
    burst.rests()
    assert burst.goes_on(Lsn(10), 100.0, 10.0)
    assert burst.goes_on(Lsn(20), 100.9, 10.0)
    assert burst.goes_on(Lsn(20), 101.8, 10.0)
    assert not burst.goes_on(Lsn(20), 102.0, 10.0)
    assert not burst.goes_on(Lsn(30), 112.0, 10.0), "the next batch follows this one"


def test_a_burst_that_does_not_end_is_taken_after_the_interval() -> None:
    burst = Burst()
    burst.rests()
    assert burst.goes_on(Lsn(1), 0.0, 2.0)
    assert burst.goes_on(Lsn(2), 1.0, 2.0)
    assert not burst.goes_on(Lsn(3), 2.0, 2.0)


def test_a_long_interval_is_not_waited_for() -> None:
    burst = Burst()
    burst.rests()
    assert burst.goes_on(Lsn(1), 0.0, 60.0)
    assert all(burst.goes_on(Lsn(1 + n), n * 0.5, 60.0) for n in range(1, 20))
    assert not burst.goes_on(Lsn(99), 10.0, 60.0)


def test_nothing_waits_for_a_destination_that_takes_changes_as_they_come() -> None:
    burst = Burst()
    burst.rests()
    assert not burst.goes_on(Lsn(1), 0.0, 0.0)
