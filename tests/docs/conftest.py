"""What the pages share: one JVM, with what Delta needs, and captures that start at once, as in tests/spark."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.session_kit import JAVA_OPTIONS, session_with
from tests.spark.conftest import capture_forks, captures_start_at_once
from walrelay.destinations.delta.needs import NEEDS
from walrelay.errors import SparkStartError
from walrelay.spark.needs import settings_for
from walrelay.spark.session import LOCAL_SETTINGS

__all__ = ["capture_forks", "captures_start_at_once"]


@pytest.fixture(scope="session")
def without_delta() -> list[str]:
    """Why there is no Delta here; empty when there is."""
    return []


@pytest.fixture(scope="module")
def spark(without_delta: list[str]) -> SparkSession:
    try:
        return session_with(settings_for(NEEDS, {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}))
    except SparkStartError as error:
        if os.environ.get("CI"):
            raise
        without_delta.append(f"Delta's package could not be had from Maven: {error.hint}")
        return session_with({})
