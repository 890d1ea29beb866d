"""What tests of every kind share: real servers, started once a session, and fresh databases in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql

from tests.repetitions import ALL_KILLS, LONG
from walrelay.testing.postgres import EmbeddedPostgres

TESTS = Path(__file__).parent

# A loaded machine is slow; no test asks how fast it is.
settings.register_profile("walrelay", deadline=None)
settings.load_profile("walrelay")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """Gives the server of a version; it is started when first asked for, and shared by all tests."""
    running: dict[int, EmbeddedPostgres] = {}
    with ExitStack() as servers:

        def server(version: int) -> EmbeddedPostgres:
            if version not in running:
                running[version] = servers.enter_context(EmbeddedPostgres(version=version))
            return running[version]

        yield server


@pytest.fixture(scope="session")
def postgres18(postgres_server: Callable[[int], EmbeddedPostgres]) -> EmbeddedPostgres:
    return postgres_server(18)


@pytest.fixture
def database(postgres18: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a fresh database, dropped afterwards."""
    name = f"test_{uuid4().hex[:12]}"
    yield postgres18.create_database(name)
    with psycopg.connect(postgres18.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


ROOMS = ("lake", "warehouse", "spark", "faults", "e2e", "integration", "contract", "roundtrip", "property", "unit")
"""In this order: what is made of long files first, so that in the end no process waits for another that has just begun
one; and what wants the same Spark session side by side."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is long, and leave it out unless everything was asked for."""
    items.sort(key=lambda item: _room(item.path))
    for item in items:
        if _is_long(item):
            item.add_marker("long")
    if ALL_KILLS or os.environ.get("WALRELAY_ALL_SHAPES"):
        return
    long = [item for item in items if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item.get_closest_marker("long") is None]


def _room(file: Path) -> int:
    """Its place among ROOMS; files from elsewhere come last."""
    parts = file.relative_to(TESTS).parts if file.is_relative_to(TESTS) else ("",)
    return ROOMS.index(parts[0]) if parts[0] in ROOMS else len(ROOMS)


def _is_long(item: pytest.Item) -> bool:
    """By the table, or by its module, which may say how the names of its long tests begin, `IN_LONG`, or those of all
    others, `SHORT`."""
    module = getattr(item, "module", None)
    short: tuple[str, ...] | None = getattr(module, "SHORT", None)
    if short is not None and not item.name.startswith(short):
        return True
    return item.nodeid.startswith(LONG) or item.name.startswith(getattr(module, "IN_LONG", ()))
