"""The page about shaping tables works as it stands."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_readme import blocks
from tests.spark.live_kit import Live
from tests.spark.test_shaped_pipeline import rows_in
from walrelay.config.loading import load

SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, email text, card text, phone text, city text, remarks text);
CREATE TABLE orders (id int PRIMARY KEY, at date);
CREATE TABLE prices (id int PRIMARY KEY, price int);
CREATE TABLE items (id int PRIMARY KEY, price numeric(8, 2), label varchar(20));
CREATE TABLE audit_2026 (id int PRIMARY KEY);
ALTER TABLE items REPLICA IDENTITY FULL;
CREATE PUBLICATION shop FOR ALL TABLES;
INSERT INTO customers VALUES (1, 'Ann', 'ann@example.com', '40001234', '555', 'Bonn', 'nice');
INSERT INTO orders VALUES (1, '2026-01-01'), (2, '2026-01-02');
INSERT INTO prices VALUES (1, 10);
INSERT INTO items VALUES (1, 100, 'Big');
"""


def test_the_page_says_the_same_in_yaml_and_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, *_ = blocks("python", "docs/how-to/shape-tables.md")
    (yaml,) = blocks("yaml", "docs/how-to/shape-tables.md")
    file = tmp_path / "pipeline.yaml"
    least = (
        "source: {url: postgresql://h/d, publication: shop}\ndestination: {url: duckdb:///x.duckdb}\nstore: {path: s}\n"
    )
    file.write_text(least + yaml)
    monkeypatch.setenv("SALT", "a long word that nobody else knows")
    page: dict[str, Any] = {}
    exec(options, page)
    assert {name: keys.options() for name, keys in load([file]).config.tables.items()} == page["tables"]


def test_the_page_works_as_it_stands(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    options, function, run = blocks("python", "docs/how-to/shape-tables.md")
    (publication,) = blocks("sql", "docs/how-to/shape-tables.md")
    live.sql(*SHOP.strip().split(";\n"))
    monkeypatch.chdir(live.file.parent)
    page: dict[str, Any] = {}
    for _ in range(2):
        theirs = "postgresql://me@db.example.com:5432/app"
        assert theirs in run
        exec(options + function + run.replace(theirs, live.url), page)
        live.sql("DELETE FROM orders WHERE id = 2", "UPDATE prices SET price = 20", "UPDATE items SET label = 'BIG'")
    file = live.file.with_name("shop.duckdb")
    digest = hashlib.sha256(b"a long word that nobody else knowsann@example.com").hexdigest()
    found = rows_in(file, "SELECT full_name, email, card, phone, city FROM raw.shop_customers")
    assert found == [("Ann", digest, "****1234", None, "somewhere")]
    assert rows_in(file, "SELECT id, _walrelay_deleted FROM public.orders ORDER BY id") == [(1, False), (2, True)]
    history = rows_in(file, "SELECT _walrelay_operation, price FROM public.prices ORDER BY _walrelay_lsn")
    assert history == [("copy", 10), ("update", 20)]
    assert rows_in(file, "SELECT with_tax, label FROM public.items") == [(pytest.approx(119.0), "big")]
    live.sql("DROP PUBLICATION shop")  # one for all tables names none
    live.sql("CREATE PUBLICATION shop", publication)
    ours = "slot_name LIKE 'walrelay_shop%' AND NOT active"
    live.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {ours}")
