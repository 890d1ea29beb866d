"""The tables of types in the pages about destinations are what the dialects say."""

from __future__ import annotations

from pathlib import Path

import pytest

from walrelay.control.type_page import DIRECTORY, PAGES, type_table, with_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("destination", PAGES)
def test_the_table_of_types_is_that_of_the_dialect(destination: str) -> None:
    """When it is not: python -m walrelay.control.type_page"""
    page = (ROOT / DIRECTORY / f"{destination}.md").read_text(encoding="utf-8")
    assert with_table(page, PAGES[destination]) == page
    assert type_table(PAGES[destination]) in page
