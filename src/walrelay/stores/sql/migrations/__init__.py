"""The store's schema, step by step. A step that was released is never changed: the next one mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from walrelay.stores.sql.migrations import m0001_tables, m0002_facts

Step = Callable[[Connection], None]

MIGRATIONS: Final[tuple[tuple[str, Step], ...]] = (
    ("tables", m0001_tables.upgrade),
    ("facts", m0002_facts.upgrade),
)
"""Number 1 comes first; each with its name."""
