"""Spark that is started when it is first needed: who waits for it, who does not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from walrelay.errors import SparkStartError, StoppedError
from walrelay.spark import on_demand
from walrelay.spark.on_demand import SparkOnDemand

SESSION: Any = object()


def test_it_is_started_once_and_only_when_asked_for() -> None:
    starts: list[int] = []

    def start() -> Any:
        starts.append(1)
        return SESSION

    spark = SparkOnDemand(start, threading.Event())
    assert spark.started is None and not starts
    assert spark() is SESSION and spark() is SESSION and spark.started is SESSION
    assert len(starts) == 1


def test_who_waits_for_a_start_that_takes_long_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "GRACE_SECONDS", 0.0)
    stopping, release = threading.Event(), threading.Event()

    def start() -> Any:
        stopping.set()
        release.wait(60)
        return SESSION

    spark = SparkOnDemand(start, stopping)
    with pytest.raises(StoppedError):
        spark()
    release.set()
    assert spark.begin().result(60) is SESSION


def test_a_start_that_failed_is_tried_again() -> None:
    outcomes: list[Any] = [SparkStartError("no"), SESSION]

    def start() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    spark = SparkOnDemand(start, threading.Event())
    with pytest.raises(SparkStartError):
        spark()
    assert spark() is SESSION
