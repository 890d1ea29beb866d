"""What tests of warehouses share: those marked `long` run with `make warehouses` only."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.repetitions import ALL_KILLS
from tests.session_kit import JAVA_OPTIONS, session_with
from walrelay.spark.session import LOCAL_SETTINGS


@pytest.fixture(scope="module")
def warehouse_spark() -> SparkSession:
    """With the quick compiler: tables here are small."""
    return session_with({JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
