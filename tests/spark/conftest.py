"""One Spark session for all tests that need one, and what a running pipeline needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.session_kit import session_with
from tests.spark.capture_forks import CaptureForks
from tests.spark.live_kit import Live
from walrelay.capture import process as capture_process
from walrelay.workers import live as live_module


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_with({})


@pytest.fixture(scope="session")
def capture_forks() -> Iterator[CaptureForks]:
    made = CaptureForks()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def captures_start_at_once(capture_forks: CaptureForks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every test here starts some; half of its time would go into their imports."""
    monkeypatch.setattr(capture_process, "subprocess", capture_forks)


@pytest.fixture
def live(database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 0.1)
    made = Live(database, tmp_path, spark)
    yield made
    made.close()
