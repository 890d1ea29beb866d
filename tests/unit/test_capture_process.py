"""Capture's supervisor: whatever happens at the start of the process, it is tried again, or said that it is not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.capture_kit import wait_until
from walrelay.capture import process as capture_process
from walrelay.capture.process import CaptureProcess
from walrelay.config.settings import capture_settings
from walrelay.errors import CaptureDiedError
from walrelay.postgres.source import PostgresSource

Popen = Callable[..., subprocess.Popen[str]]


class Supervised:
    def __init__(self, log: Path) -> None:
        self.told: list[str] = []
        self.process = CaptureProcess(
            PostgresSource("postgresql://nobody@127.0.0.1:1/none", publication="p"),
            slot="s",
            log=log,
            settings=capture_settings(),
            notify=self.told.append,
        )


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    monkeypatch.setattr(capture_process, "FIRST_DELAY", timedelta(milliseconds=10))
    monkeypatch.setattr(capture_process, "LONGEST_DELAY", timedelta(milliseconds=10))
    one = Supervised(tmp_path)
    yield one
    one.process._stopping.set()
    one.process._thread.join()


def start(supervised: Supervised, monkeypatch: pytest.MonkeyPatch, popen: Popen) -> None:
    monkeypatch.setattr(capture_process.subprocess, "Popen", popen)
    supervised.process.start()


def test_one_that_dies_before_it_is_told_its_task_is_started_again(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Popen = subprocess.Popen

    def dead(_command: object, **options: Any) -> subprocess.Popen[str]:
        child = original(["false"], **options)
        child.wait()
        return child

    start(supervised, monkeypatch, dead)
    wait_until(lambda: len(supervised.told) > 3, "it is tried again and again")
    assert supervised.process.running
    supervised.process.check()
    assert "ended with code 1; it starts again" in supervised.told[0]


def test_one_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    """What fails between its making and its start, a full disk for one, is what the user must hear of."""
    Supervised(tmp_path).process.stop()


def test_one_that_cannot_be_started_is_tried_again(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_command: object, **_options: Any) -> subprocess.Popen[str]:
        raise OSError(12, "Cannot allocate memory")

    start(supervised, monkeypatch, refused)
    wait_until(lambda: len(supervised.told) > 3, "it is tried again and again")
    assert "could not be started (Cannot allocate memory); it starts again" in supervised.told[0]


def test_a_supervisor_that_fails_says_so(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_command: object, **_options: Any) -> subprocess.Popen[str]:
        raise ValueError("embedded null byte")

    start(supervised, monkeypatch, wrong)
    with pytest.raises(CaptureDiedError, match="embedded null byte"):
        supervised.process.wait(30)
