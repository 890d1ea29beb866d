"""SQL that is longer than a line, one statement a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, LiteralString


@cache
def statement(name: str) -> LiteralString:
    """The text of `name`.sql; part of the package, hence literal."""
    text: Any = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal
