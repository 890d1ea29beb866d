"""The table of tests that `make test` leaves out names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repetitions import LONG

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("begins", LONG)
def test_a_line_names_tests_that_are_there(begins: str) -> None:
    file, _, name = begins.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"{'class' if name.startswith('Test') else 'def'} {name.partition('::')[0].partition('[')[0]}" in text
