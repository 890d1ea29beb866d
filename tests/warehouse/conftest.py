"""What all tests of warehouses share: those that are marked `long`, or whose name begins as one of their module's
`IN_LONG`, run with `make warehouses` alone."""

from __future__ import annotations

import pytest

from tests.repetitions import ALL_KILLS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    left_out = [item for item in items if "tests/warehouse" in item.nodeid and _is_long(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_long(item: pytest.Item) -> bool:
    names: tuple[str, ...] = getattr(getattr(item, "module", None), "IN_LONG", ())
    return item.get_closest_marker("long") is not None or item.name.startswith(names)
