"""What all tests of warehouses share: those that are marked `long` run with `make warehouses` alone."""

from __future__ import annotations

import pytest

from tests.repetitions import ALL_KILLS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    left_out = [item for item in items if "tests/warehouse" in item.nodeid and item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
