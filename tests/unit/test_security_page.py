"""SECURITY.md: each of its lines names tests that exist; and those lines that hold for the source code as a whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
READERS = {"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "marshal.loads", "shelve.open"}
EVALUATORS = {"eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load"}


def lines() -> list[tuple[str, str]]:
    """What is said, and by what it is held."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE, re.M)
    return [(said, held) for said, held in rows if said != "what" and not said.startswith("---")]


def test_every_line_names_tests_or_says_that_there_is_none() -> None:
    found = lines()
    assert len(found) > 20
    assert [said for said, held in found if "tests/" not in held and not held.startswith("no test: ")] == []


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))
    assert len(named) > 30
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_nothing_that_is_read_is_unpickled_or_evaluated() -> None:
    """Spark's closures are pickled by Spark itself, from one of our processes to another."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}"
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in READERS | EVALUATORS
    ]
    assert found == []


def test_every_locked_package_has_a_hash_and_no_lock_names_an_index() -> None:
    locks = list((ROOT / "requirements").rglob("*.lock"))
    assert len(locks) > 5
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        packages = [line for line in text.replace("\\\n", " ").splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert packages and all("--hash=sha256:" in package for package in packages), lock.name
        assert not re.search(r"https?://|--index-url|--extra-index-url", text), lock.name
