"""Pipelines into lakes, from the first copy through changes and altered columns, seen by readers that are not ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.lake.lake_kit import Lake, catch_up

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE orders (
    id bigint PRIMARY KEY, key uuid, at time, paid numeric(8, 2), made timestamp, seen timestamptz, day date,
    took interval, span int4range, tags text[], feels mood, body text, raw bytea, any_number numeric, doc jsonb
);
CREATE TABLE loose (n int, f float8);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE "Odd name, with = signs" (id int PRIMARY KEY, "a b" text);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO orders SELECT g, md5(g::text)::uuid, make_time(g % 24, 0, g / 7.0), g / 3.0,
    timestamp '2020-01-01' + g * interval '1 s', timestamptz '2020-01-01Z' - g * interval '1 year',
    date '0001-01-01' + g, g * interval '1 month 3 days 1 s',
    int4range(g, g + 5), ARRAY['a', NULL, g::text], 'ok', repeat(md5(g::text), 200),
    decode(md5(g::text), 'hex'), g / 7.0, jsonb_build_object('n', g)
  FROM generate_series(1, 300) g;
INSERT INTO loose SELECT g % 3, CASE WHEN g % 2 = 0 THEN 0.0 ELSE '-0.0'::float8 END FROM generate_series(1, 12) g;
INSERT INTO "Odd name, with = signs" VALUES (1, 'x');
"""
ROW = """SELECT to_jsonb(t) - '{took,span,raw,made,seen,paid,any_number}'::text[]
    || jsonb_build_object('paid', paid::text, 'any_number', any_number::text) FROM orders t ORDER BY id"""


@pytest.fixture
def caught_up(database: str, tmp_path: Path, lake_spark: SparkSession, lake: Lake) -> Iterator[Callable[[], list[str]]]:
    """Runs the pipeline until it has caught up; what it said."""
    slot = f"lake_{uuid4().hex[:12]}"

    def run() -> list[str]:
        return catch_up(tmp_path, database, slot, lake, lake_spark).heard

    yield run
    drop_slot(database, slot)


def number(value: float | None) -> str | None:
    return None if value is None else repr(value).removesuffix(".0")


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """As Postgres's JSON has it."""
    kept = {name: value for name, value in row.items() if name not in {"took", "span", "raw", "made", "seen"}}
    for name in ("day", "paid"):
        if kept.get(name) is not None:
            kept[name] = str(kept[name])
    if kept.get("doc") is not None:
        kept["doc"] = json.loads(kept["doc"])
    return kept


def test_a_pipeline_into_a_lake_keeps_tables_equal_through_changes_and_altered_columns(
    database: str, lake: Lake, lake_spark: SparkSession, caught_up: Callable[[], list[str]]
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)

        def same() -> None:
            wanted = [row[0] for row in source.execute(ROW).fetchall()]
            assert sorted((plain(row) for row in lake.held("orders")), key=lambda row: row["id"]) == wanted
            loose = source.execute("SELECT n, lower(f::text) FROM loose").fetchall()
            found = [(row["n"], number(row["f"])) for row in lake.held("loose")]
            assert Counter(found) == Counter(loose)

        caught_up()
        same()
        assert lake.held("Odd name~2C with ~3D signs") == [{"id": 1, "a b": "x"}]
        # Rows that keep a value that is not sent again, keys that move, and one of several equal rows.
        source.execute("UPDATE orders SET paid = paid + 1 WHERE id <= 20")
        source.execute("UPDATE orders SET id = id + 1000, key = NULL WHERE id BETWEEN 5 AND 8")
        source.execute("DELETE FROM orders WHERE id BETWEEN 30 AND 40")
        source.execute("INSERT INTO orders (id, at, body) VALUES (30, '24:00', 'new'), (2000, '00:00:00.5', NULL)")
        source.execute("DELETE FROM loose WHERE ctid = (SELECT min(ctid) FROM loose)")
        source.execute("INSERT INTO loose VALUES (7, 'NaN'), (NULL, NULL)")
        caught_up()
        same()
        # Columns: a new one, one with another name, one that goes and comes again as another.
        source.execute("ALTER TABLE orders ADD COLUMN more int")
        source.execute("ALTER TABLE orders RENAME COLUMN body TO words")
        source.execute("UPDATE orders SET more = id, words = 'w' WHERE id < 10")
        source.execute("ALTER TABLE orders DROP COLUMN feels")
        source.execute("ALTER TABLE orders ADD COLUMN feels text")
        source.execute("UPDATE orders SET feels = 'fine' WHERE id = 2")
        # A row that takes another key while its table does not have the column yet.
        source.execute("""UPDATE "Odd name, with = signs" SET id = 2""")
        source.execute("""ALTER TABLE "Odd name, with = signs" ADD COLUMN c int""")
        source.execute("""INSERT INTO "Odd name, with = signs" VALUES (3, 'y', 4)""")
        said = caught_up()
        same()
        odd = sorted(lake.held("Odd name~2C with ~3D signs"), key=lambda row: row["id"])
        assert [tuple(row.values()) for row in odd] == [(2, "x", None), (3, "y", 4)]
        assert not [one for one in said if "again" in one], said
        source.execute("TRUNCATE orders; INSERT INTO orders (id, words) VALUES (1, 'after')")
        source.execute("ALTER TABLE loose RENAME TO looser")
        source.execute("INSERT INTO looser VALUES (9, 9)")
        # One that holds more.
        source.execute("ALTER TABLE orders ALTER COLUMN paid TYPE numeric(12, 2)")
        source.execute("INSERT INTO orders (id, paid) VALUES (3, 1234567890.12)")
        said = caught_up()
        assert not [one for one in said if "again" in one], said
        rows = lake.widened(lake_spark, "orders", "id, words, paid")
        assert sorted(rows) == [(1, "after", None), (3, None, Decimal("1234567890.12"))]
        assert {"n": 9, "f": 9.0} in lake.held("looser") and "loose" not in lake.names()
