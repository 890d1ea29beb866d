"""The page of all error codes, docs/errors.md, made from the classes: `python -m walrelay.control.error_page`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from walrelay.errors import WalrelayError

MODULES: Final = (
    "walrelay.errors",
    "walrelay.cli.demo_pipeline",
    "walrelay.destinations.postgres.failures",
    "walrelay.log.concatenation",
    "walrelay.log.failures",
    "walrelay.log.xids",
    "walrelay.shaping.failures",
    "walrelay.stores.failures",
    "walrelay.telemetry.failures",
    "walrelay.workers.lock_watch",
    "walrelay.workers.table_sync",
)
"""All that define errors, by name: some are above this package. Those of the test kit no user meets."""
PAGE: Final = Path("docs/errors.md")
_BEGINNING: Final = """\
# Error codes

Made from the code by `python -m walrelay.control.error_page`; do not edit.

Every error has a code that stays the same, says what happened, and says what to do. What happens by itself:

- **tried again**: with pauses that grow, as often as `--retries` says; capture goes on trying.
- **tried now and then**: a table that fails so is tried again every few minutes and at every start, since somebody may
  have removed the cause; `walrelay resync` does it at once.
- **begins anew when asked**: changes are lost for good. `walrelay replicate --begin-anew` makes what must be made anew.
- **copied again**: what the log has cannot bring the table further; whoever tries it again copies it.
"""
_BY_ITSELF: Final = (
    ("retryable", "tried again"),
    ("may_pass", "tried now and then"),
    ("begins_anew", "begins anew when asked"),
    ("copies_again", "copied again"),
)
_OWN_HINT: Final = "The message's own hint says."


def error_classes() -> list[type[WalrelayError]]:
    """Every class that can be met outside of tests, by code."""
    for module in MODULES:
        importlib.import_module(module)
    found = [kind for kind in _with_subclasses(WalrelayError) if kind.__module__ in MODULES]
    return sorted(found, key=lambda kind: kind.code)


def own_hint(kind: type[WalrelayError]) -> str:
    """What the class itself says is to be done; one that it only inherits is too general for it."""
    return str(vars(kind).get("default_hint", ""))


def is_family(kind: type[WalrelayError]) -> bool:
    """Whether it only stands for those below it: it is not raised itself, so it needs no hint."""
    return not own_hint(kind) and bool(kind.__subclasses__())


def render() -> str:
    """The page."""
    parts = [_BEGINNING]
    for word, members in groupby(error_classes(), key=lambda kind: kind.code.partition(".")[0]):
        if word != WalrelayError.code:
            parts.append("\n".join(_section(word, list(members))))
    return "\n".join(parts)


def _section(word: str, members: list[type[WalrelayError]]) -> Iterator[str]:
    yield f"## {word}\n"
    yield "| Code | What it means | What to do | By itself |"
    yield "| --- | --- | --- | --- |"
    for kind in members:
        if not is_family(kind):
            cells = (f"`{kind.code}`", meaning(kind), own_hint(kind) or _OWN_HINT, _by_itself(kind))
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def meaning(kind: type[WalrelayError]) -> str:
    """The first sentence of the class's own docstring."""
    text = " ".join((vars(kind).get("__doc__") or "").split())
    sentence, stop, _ = text.partition(". ")
    return sentence + ("." if stop else "")


def _by_itself(kind: type[WalrelayError]) -> str:
    return ", ".join(words for name, words in _BY_ITSELF if getattr(kind, name)) or "–"


def _with_subclasses(root: type[WalrelayError]) -> Iterator[type[WalrelayError]]:
    yield root
    for child in root.__subclasses__():
        yield from _with_subclasses(child)


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(render(), encoding="utf-8")
