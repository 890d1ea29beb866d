"""A streaming query that Spark loses: how often it is begun again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from walrelay.errors import SparkJobError
from walrelay.log.failures import LogGoneError
from walrelay.model.lsn import Lsn
from walrelay.spark import change_query
from walrelay.spark.change_query import ATTEMPTS, STEADY_SECONDS, ChangeQuery


class Begun(ChangeQuery):
    """Counts instead of asking Spark."""

    def __init__(self, log: Path) -> None:
        self.delays: list[float] = []
        self.told: list[str] = []
        spark: Any = None
        super().__init__(spark, str(log), Lsn(0), lambda _: None, name="q", notify=self.told.append)

    def start(self) -> None:
        self._attempts += 1
        self.delays.append(self._delay)


@pytest.fixture
def query(tmp_path: Path) -> Begun:
    return Begun(tmp_path)


def test_a_query_that_never_comes_to_work_is_begun_so_many_times_and_ever_later(query: Begun) -> None:
    query.start()
    for _ in range(ATTEMPTS - 1):
        query._failed(RuntimeError("no worker\nand a trace"))
        query.check()
    assert query.delays == [change_query.SETTLE_SECONDS, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert len(query.told) == ATTEMPTS - 1 and "(no worker)" in query.told[0]
    query._failed(RuntimeError("no worker\nand a trace"))
    with pytest.raises(SparkJobError, match="the streaming query ended: no worker"):
        query.check()


def test_one_that_lived_long_or_has_called_is_not_counted(query: Begun) -> None:
    query.start()
    for _ in range(3 * ATTEMPTS):
        query._living_since = time.monotonic() - STEADY_SECONDS - 1
        query._failed(RuntimeError("killed"))
    frame: Any = None
    for number in range(3 * ATTEMPTS):
        query._stopping.set()  # it calls, and finds nothing to take
        query._batch(frame, number)
        query._stopping.clear()
        query._failed(RuntimeError("killed"))
    query.check()
    assert set(query.delays[1:]) == {change_query.FIRST_DELAY.total_seconds()}


def test_one_that_could_not_be_started_after_a_long_life_is_counted(query: Begun) -> None:
    query._living_since = time.monotonic() - STEADY_SECONDS - 1
    for _ in range(ATTEMPTS + 1):
        query._failed(RuntimeError("no memory"))
    with pytest.raises(SparkJobError):
        query.check()


def test_an_error_of_ours_ends_it_at_once(query: Begun) -> None:
    query._failed(RuntimeError(LogGoneError("it is gone").to_text()))
    assert query.delays == []
    with pytest.raises(LogGoneError, match="it is gone"):
        query.check()


def test_one_that_fails_while_it_is_stopped_is_not_spoken_of(query: Begun) -> None:
    query._stopping.set()
    query._failed(RuntimeError("the context is gone"))
    query.check()
    assert query.delays == [] and query.told == []
