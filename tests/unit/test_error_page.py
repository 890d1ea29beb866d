"""The page of error codes is what the code says, and every error that can be met says what to do."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from walrelay.control.error_page import MODULES, PAGE, error_classes, is_family, meaning, own_hint, render
from walrelay.errors import WalrelayError

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
KINDS = error_classes()
ASKERS = ("isinstance", "issubclass", "suppress")
NOT_FOR_USERS = ("walrelay.testing", "walrelay.failpoints")


def modules() -> dict[str, ast.Module]:
    found = {}
    for file in SOURCE.joinpath("walrelay").rglob("*.py"):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        if not name.startswith(NOT_FOR_USERS):
            found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


TREES = modules()


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = ROOT / PAGE
    assert page.read_text(encoding="utf-8") == render(), "run `python -m walrelay.control.error_page`"


def test_every_code_is_there_once() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(codes) == len(set(codes))
    shown = [line.split("`")[1] for line in render().splitlines() if line.startswith("| `")]
    assert shown == [kind.code for kind in KINDS if not is_family(kind)]


def test_no_module_defines_an_error_that_the_page_does_not_know() -> None:
    known = {kind.__name__ for kind in KINDS}
    elsewhere = {
        f"{name}.{node.name}"
        for name, tree in TREES.items()
        if name not in MODULES
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and known & {ast.unparse(base) for base in node.bases}
    }
    assert elsewhere == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_says_what_it_means(kind: type[WalrelayError]) -> None:
    assert meaning(kind).endswith("."), "its class has no docstring that begins with a sentence"


def test_every_error_that_is_raised_has_a_hint() -> None:
    """Its class's own, or one at every place that makes it; a class that is handed around as such may be made anywhere,
    so it needs one of its own."""
    without = {kind.__name__ for kind in KINDS if not own_hint(kind) and kind is not WalrelayError}
    lacking = defaultdict(list)
    for name, tree in TREES.items():
        called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        harmless = _harmless(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Name) and node.id in without):
                continue
            call = called.get(id(node))
            hinted = call is not None and any(keyword.arg == "hint" for keyword in call.keywords)
            if not hinted and id(node) not in harmless:
                lacking[node.id].append(f"{name}:{node.lineno}")
    assert dict(lacking) == {}


def _harmless(tree: ast.Module) -> set[int]:
    """Names of classes that stand where nothing is made of them: bases, annotations, `except`, questions."""
    places: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            places += node.bases
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            places += [one for one in (node.returns, *(argument.annotation for argument in arguments)) if one]
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            places.append(node.type)
        elif isinstance(node, ast.AnnAssign):
            places.append(node.annotation)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKERS:
            places += node.args
        elif isinstance(node, ast.Attribute | ast.Subscript):
            places.append(node.value if isinstance(node, ast.Attribute) else node.slice)
    return {id(name) for place in places for name in ast.walk(place)}
