"""A pipeline into Delta, from the first copy through changes and altered columns, seen by a reader that is not ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from walrelay import DeltaDestination, Pipeline, PostgresSource, SqliteStore
from walrelay.workers.report import Silent

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


class Notices(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def notice(self, message: str) -> None:
        self.heard.append(message)


@pytest.fixture
def caught_up(database: str, tmp_path: Path, lake_spark: SparkSession) -> Iterator[Callable[[], list[str]]]:
    """Runs the pipeline until it has caught up; what it said."""
    slot = f"delta_{uuid4().hex[:12]}"

    def run() -> list[str]:
        store, notices = SqliteStore(tmp_path / "state.db", "walrelay"), Notices()
        pipeline = Pipeline(
            PostgresSource(database, publication="p"),
            DeltaDestination(tmp_path / "lake"),
            store,
            mode="both",
            spark=lake_spark,
            listener=notices,
            log=tmp_path / "log",
            slot=slot,
        )
        try:
            pipeline.run("caught-up")
        finally:
            store.close()
        return notices.heard

    yield run
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (slot,)
        )


def held(lake: Path, name: str) -> list[dict[str, Any]]:
    """What delta-rs finds."""
    table = deltalake.DeltaTable(str(lake / "public" / name))
    found = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()


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


def test_a_pipeline_into_delta_keeps_tables_equal_through_changes_and_altered_columns(
    database: str, tmp_path: Path, lake_spark: SparkSession, caught_up: Callable[[], list[str]]
) -> None:
    lake = tmp_path / "lake"
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)

        def same() -> None:
            wanted = [row[0] for row in source.execute(ROW).fetchall()]
            assert sorted((plain(row) for row in held(lake, "orders")), key=lambda row: row["id"]) == wanted
            loose = source.execute("SELECT n, lower(f::text) FROM loose").fetchall()
            found = [(row["n"], number(row["f"])) for row in held(lake, "loose")]
            assert Counter(found) == Counter(loose)

        caught_up()
        same()
        assert held(lake, "Odd name~2C with ~3D signs") == [{"id": 1, "a b": "x"}]
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
        said = caught_up()
        same()
        assert not [one for one in said if "again" in one], said
        source.execute("TRUNCATE orders; INSERT INTO orders (id, words) VALUES (1, 'after')")
        source.execute("ALTER TABLE loose RENAME TO looser")
        source.execute("INSERT INTO looser VALUES (9, 9)")
        # One that holds more: delta-rs does not read such a table yet.
        source.execute("ALTER TABLE orders ALTER COLUMN paid TYPE numeric(12, 2)")
        source.execute("INSERT INTO orders (id, paid) VALUES (3, 1234567890.12)")
        said = caught_up()
        assert not [one for one in said if "again" in one], said
        place = lake / "public" / "orders"
        rows = lake_spark.sql(f"SELECT id, words, paid FROM delta.`{place}` ORDER BY id").collect()
        assert [tuple(row) for row in rows] == [(1, "after", None), (3, None, Decimal("1234567890.12"))]
        assert {"n": 9, "f": 9.0} in held(lake, "looser") and not (lake / "public" / "loose").exists()
