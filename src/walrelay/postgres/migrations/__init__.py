"""SQL that installs the DDL trigger on the source, and removes it; run by `walrelay.postgres.source_migrations`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, LiteralString


@cache
def script(name: str) -> LiteralString:
    """The text of `name`.sql; part of the package, hence literal."""
    text: Any = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    literal: LiteralString = text
    return literal
