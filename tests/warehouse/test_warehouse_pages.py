"""What the pages and examples show works as it stands, with an emulator's address in place of the service's."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.e2e.test_examples import run
from tests.e2e.test_readme import ADDRESS, blocks
from tests.warehouse.bigquery_kit import PROJECT, BigQueryPlace
from tests.warehouse.warehouse_kit import Place

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(600)]
FREE_SLOTS = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE orders")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
    return database


def test_the_page_works_as_it_stands(
    place: Place, shop: str, tmp_path: Path, warehouse_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = blocks("python", f"docs/destinations/{place.name}.md")
    if isinstance(place, BigQueryPlace):
        there = f'("{PROJECT}", "{place.dataset}", endpoint="{place.endpoint}")'
        script = script.replace('("my-project", "my_dataset")', there)
    else:
        there = f'connection={{"host": "127.0.0.1", "port": {place.port}, "protocol": "http"}})'
        script = script.replace('"PUBLIC"', f'"{place.schema}"').replace('warehouse="LOAD")', there)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(script.replace(ADDRESS, shop), "page", "exec"), {})
    assert sorted(row["id"] for row in place.held("orders")) == [1, 2]
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute(FREE_SLOTS)


def test_the_example_works_as_it_stands(place: Place, shop: str, tmp_path: Path) -> None:
    said = run(f"into_{place.name}.py", shop, "shop", place.url, str(tmp_path))
    assert said == "2 rows copied, 0 changes\n"
    assert sorted(row["id"] for row in place.held("orders")) == [1, 2]
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute(FREE_SLOTS)
