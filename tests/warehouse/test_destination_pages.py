"""The commands in the pages about Postgres and ClickHouse work as they stand; only the addresses are ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.e2e.test_readme import ADDRESS, commands, run_command
from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, place
from tests.warehouse.postgres_kit import contents, fresh_database
from walrelay.testing.postgres import EmbeddedPostgres

__all__ = ["clickhouse", "place"]
pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, at date); INSERT INTO orders VALUES (1, 'today')")
        connection.execute("CREATE PUBLICATION shop FOR TABLE orders")
        yield database
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def run_page(page: str, theirs: str, ours: str, shop: str, tmp_path: Path) -> None:
    (command,) = commands(f"docs/destinations/{page}.md")
    assert ADDRESS in command and theirs in command
    run_command(command.replace(theirs, ours), shop, tmp_path)


def test_the_page_about_postgres(shop: str, postgres18: EmbeddedPostgres, tmp_path: Path) -> None:
    with fresh_database(postgres18) as target:
        run_page("postgres", "postgresql://me@new.example.com:5432/app", target, shop, tmp_path)
        assert [row["id"] for row in contents(target, "public.orders")] == [1]


def test_the_page_about_clickhouse(shop: str, clickhouse: ClickHouse, place: str, tmp_path: Path) -> None:
    ours = clickhouse.url(place)
    run_page("clickhouse", "clickhouse://relay:secret@ch.example.com:8123/shop", ours, shop, tmp_path)
    assert [row["id"] for row in clickhouse.rows(place, "public.orders")] == [1]
