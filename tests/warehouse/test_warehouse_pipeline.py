"""A pipeline into a warehouse, with DDL, compared with the source by the clients of both; and by `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.warehouse.warehouse_kit import Place, assert_same, catch_up, verified
from walrelay.destinations.warehouse.names import OWN

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, paid numeric(8, 2), body text, note text);
ALTER TABLE orders ALTER COLUMN body SET STORAGE EXTERNAL;  -- so that an update leaves it out
CREATE TABLE loose (n int, word text, x float8);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE SCHEMA sales;
CREATE TABLE sales.items (a int, b text, PRIMARY KEY (a, b));
CREATE PUBLICATION p FOR TABLE orders, loose, sales.items;
INSERT INTO orders SELECT g, g / 3.0, repeat(md5(g::text), 100), 'n' || g FROM generate_series(1, 300) g;
INSERT INTO loose SELECT g % 5, 'w', CASE WHEN g % 2 = 0 THEN 'NaN' ELSE '-0' END::float8 FROM generate_series(1, 50) g;
INSERT INTO sales.items VALUES (1, 'x'), (2, 'y');
"""
CHANGES = """
INSERT INTO orders SELECT g + 1000, g, 'new', NULL FROM generate_series(1, 50) g;
UPDATE orders SET paid = paid + 1 WHERE id % 3 = 0;
UPDATE orders SET id = id + 100000 WHERE id % 10 = 1 AND id < 100000;
DELETE FROM orders WHERE id % 13 = 2;
DELETE FROM loose WHERE ctid IN (SELECT min(ctid) FROM loose GROUP BY n);
UPDATE loose SET word = word || '+' WHERE n = 3;
INSERT INTO loose VALUES (NULL, NULL, '0'), (1, 'w', '-0');
UPDATE sales.items SET b = b || '!';
"""
ALTERED = """
ALTER TABLE orders ADD COLUMN more int;
UPDATE orders SET more = 1 WHERE id % 5 = 0;
ALTER TABLE orders DROP COLUMN note;
ALTER TABLE orders RENAME COLUMN paid TO price;
INSERT INTO orders VALUES (-1, 5.5, 'after', 7);
BEGIN; ALTER TABLE orders RENAME COLUMN price TO between_names; ALTER TABLE orders RENAME COLUMN more TO price;
ALTER TABLE orders RENAME COLUMN between_names TO more; COMMIT;
INSERT INTO orders VALUES (-2, 6.5, 'swapped', 8);
ALTER TABLE sales.items RENAME TO things;
INSERT INTO sales.things VALUES (9, 'renamed');
"""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"warehouse_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def test_a_pipeline_keeps_tables_current_through_ddl_and_verify_says_so(
    place: Place, database: str, slot: str, tmp_path: Path, warehouse_spark: SparkSession
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        copied = catch_up(place, tmp_path, database, slot, warehouse_spark)
        assert sorted(copied.copied) == ["items", "loose", "orders"]
        assert_same(source, place, ("orders", "loose"), "the copy")
        source.execute(CHANGES)
        changed = catch_up(place, tmp_path, database, slot, warehouse_spark)
        assert not changed.copied, changed.heard
        assert_same(source, place, ("orders", "loose"), "changes")
        for statement in ALTERED.split(";\n"):
            source.execute(statement.encode())
        followed = catch_up(place, tmp_path, database, slot, warehouse_spark)
        assert_same(source, place, ("orders", "loose"), "DDL")
        assert sorted(row["a"] for row in place.rows("sales.things")) == [1, 2, 9]
        assert not [one for one in place.names() if one.startswith(f"{OWN}stage")], "stages are dropped"
        assert set(followed.copied) <= {"orders"}, "only where the catalog leaves a doubt, which a copy settles"
    report = verified(place, tmp_path, database, slot, warehouse_spark)
    assert report.exit_code == 0, report.to_json()
    assert {str(one.name): one.rows for one in report.tables}["public.loose"] == 52 - 5
    spoil(place)
    spoiled = verified(place, tmp_path, database, slot, warehouse_spark)
    found = {str(one.name): one for one in spoiled.tables}["public.orders"]
    assert found.status == "different" and [str(one) for one in found.differences] == ["(id = -1) differs in body"]


def spoil(place: Place) -> None:
    """Behind the pipeline's back."""
    if place.name == "bigquery":
        place.client.query_and_wait(f"UPDATE {place.table('orders')} SET body = 'spoiled' WHERE id = -1")
    else:
        place.asked('UPDATE "orders" SET "body" = \'spoiled\' WHERE "id" = -1')
