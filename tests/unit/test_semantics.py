"""The page of rules: what the code refers to is there, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "docs" / "semantics.md").read_text()


def test_every_rule_that_the_code_refers_to_is_on_the_page() -> None:
    there = set(re.findall(r"^### (\d+a?)\. ", RULES, re.MULTILINE))
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    meant = {
        number
        for file in files
        for several in re.findall(r"SEMANTICS ((?:\d+a?(?:, |–)?)+)", file.read_text())
        for number in re.findall(r"\d+a?", several)
    }
    assert len(meant) > 10 and meant <= there


def test_every_test_that_it_names_exists() -> None:
    named = set(re.findall(r"`(tests/\S+?)`", RULES))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
