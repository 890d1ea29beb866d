"""Every story, in every way, is told to DuckDB and to a stream; the others hear some, and all with `make kills`."""

from __future__ import annotations

import pytest

from tests.repetitions import ALL_KILLS

WHOLE = ("TestDuckDBDestination::", "TestJsonLinesDestination::")
SOME = {"updates and deletes", "keys that change places", "values that are not sent again"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    left = [item for item in items if _is_told_elsewhere(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_told_elsewhere(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    if given is None or "story" not in given.params or any(name in item.nodeid for name in WHOLE):
        return False
    return given.params["story"] not in SOME if "cut" not in given.params else given.params["cut"] != "in one batch"
