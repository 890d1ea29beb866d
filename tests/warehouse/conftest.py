"""What is marked `long` runs with `make warehouses` only."""

from __future__ import annotations

import pytest

from tests.repetitions import ALL_KILLS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
