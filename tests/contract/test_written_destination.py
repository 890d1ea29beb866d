"""The destination that `docs/how-to/write-a-destination.md` builds keeps the contract, and works in a pipeline."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.e2e.test_readme import blocks
from walrelay import Pipeline, PostgresSource, SqliteStore

pytest.register_assert_rewrite("walrelay.testing.destination_contract", "walrelay.testing.contract")

PAGE: dict[str, Any] = {"__name__": __name__}
_DESTINATION, _PROOF = blocks("python", "docs/how-to/write-a-destination.md")
exec(_DESTINATION + _PROOF, PAGE)
TestSqliteDestination = PAGE["TestSqliteDestination"]
pytestmark = pytest.mark.postgres


def test_it_is_about_a_hundred_lines() -> None:
    code = [line for line in _DESTINATION.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 115


def test_it_keeps_tables_current_and_copies_an_altered_one_again(database: str, tmp_path: Path) -> None:
    slot = f"written_{uuid4().hex[:12]}"

    def caught_up() -> None:
        with closing(SqliteStore(tmp_path / "state.sqlite", "written")) as store:
            source = PostgresSource(database, publication="p")
            destination = PAGE["SqliteDestination"](str(tmp_path / "copy.sqlite"))
            Pipeline(source, destination, store, mode="both", log=tmp_path / "log", slot=slot).run("caught-up")

    def same() -> None:
        with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as reader:
            found = sorted(reader.execute('SELECT * FROM "public.orders"').fetchall())
        assert found == sorted(source.execute("SELECT * FROM orders").fetchall())

    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        source.execute("CREATE PUBLICATION p FOR TABLE orders")
        source.execute("INSERT INTO orders SELECT g, 'n' || g FROM generate_series(1, 20) g")
        caught_up()
        source.execute("UPDATE orders SET id = id + 100, note = NULL WHERE id < 5; DELETE FROM orders WHERE id > 15")
        caught_up()
        same()
        source.execute("ALTER TABLE orders ADD COLUMN more int DEFAULT 7; INSERT INTO orders VALUES (1, 'x', 1)")
        caught_up()
        same()
        source.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
