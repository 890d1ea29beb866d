"""Pipelines into Postgres, from the first copy through changes and altered tables, compared by psql's own eyes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.capture_kit import wait_until
from tests.faults.pipeline_kit import drop_slot
from tests.lake.lake_kit import Notices
from tests.session_kit import session_with
from tests.warehouse.postgres_kit import fresh_database
from walrelay import Pipeline, PostgresDestination, PostgresSource, SqliteStore
from walrelay.testing.background import in_background
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE SCHEMA side;
CREATE TABLE orders (
    id bigint PRIMARY KEY, key uuid, at time, paid numeric(8, 2), seen timestamptz, took interval, span int4range,
    tags text[], feels mood, both_of pair, body text, raw bytea, doc jsonb
);
CREATE TABLE side.loose (n int, f float8);
ALTER TABLE side.loose REPLICA IDENTITY FULL;
CREATE TABLE "Odd name, with = signs" (id int PRIMARY KEY, "a b" text);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO orders SELECT g, md5(g::text)::uuid, '24:00', g / 3.0, CASE WHEN g % 3 = 0 THEN 'infinity' ELSE now() END,
    g * interval '1 month 3 days 1 s', int4range(g, g + 5), ARRAY['a', NULL, g::text], 'ok', (g, 'x'::text)::pair,
    repeat(md5(g::text), 200), decode(md5(g::text), 'hex'), jsonb_build_object('n', g)
  FROM generate_series(1, 300) g;
INSERT INTO side.loose SELECT g % 3, CASE WHEN g % 2 = 0 THEN 0.0 ELSE '-0.0'::float8 END FROM generate_series(1, 12) g;
INSERT INTO "Odd name, with = signs" VALUES (1, 'x');
"""
ALL = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema', '_walrelay')
"""


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_with({})


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


@contextmanager
def pipeline_of(
    directory: Path, url: str, slot: str, target: str, spark: SparkSession, notices: Notices | None = None
) -> Iterator[Pipeline]:
    with closing(SqliteStore(directory / "state.sqlite", "into")) as store:
        yield Pipeline(
            PostgresSource(url, publication="p"),
            PostgresDestination(target),
            store,
            mode="both",
            spark=spark,
            listener=notices,
            id="into",
            log=directory / "log",
            slot=slot,
        )


@contextmanager
def running(*given: Any) -> Iterator[Pipeline]:
    """Once all tables are ready."""
    with pipeline_of(*given) as pipeline:
        pipeline.start()
        try:
            wait_ready(pipeline)
            yield pipeline
        finally:
            pipeline.shutdown()
            pipeline.wait()


def catch_up(directory: Path, url: str, slot: str, target: str, spark: SparkSession) -> Notices:
    notices = Notices()
    with pipeline_of(directory, url, slot, target, spark, notices) as pipeline:
        pipeline.run("caught-up")
    return notices


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"into_{uuid4().hex[:12]}"
    yield name
    drop_slot(database, name)


@pytest.fixture
def caught_up(database: str, target: str, tmp_path: Path, slot: str, spark: SparkSession) -> Callable[[], list[str]]:
    return lambda: catch_up(tmp_path, database, slot, target, spark).heard


def dump(url: str) -> dict[str, Any]:
    """Every table's columns, key and rows, by SQL that is not ours."""
    with psycopg.connect(url, autocommit=True) as connection:
        found: dict[str, Any] = {}
        for schema, name in connection.execute(ALL.encode()).fetchall():
            table = f'"{schema}"."{name}"'
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass"
                " AND attnum > 0 AND NOT attisdropped ORDER BY 1",
                (table,),
            ).fetchall()
            key = connection.execute(
                "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'",
                (table,),
            ).fetchall()
            names = ", ".join(f'"{column}"' for column, _ in columns)
            rows = connection.execute(f"SELECT ROW({names})::text FROM {table} ORDER BY 1".encode()).fetchall()
            found[f"{schema}.{name}"] = (columns, key, rows)
        return found


def test_tables_stay_equal_through_changes_and_altered_tables(
    database: str, target: str, caught_up: Callable[[], list[str]]
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        caught_up()
        assert dump(target) == dump(database)
        # Rows that keep a value that is not sent again, keys that move, and one of several equal rows.
        source.execute("UPDATE orders SET paid = paid + 1 WHERE id <= 20")
        source.execute("UPDATE orders SET id = id + 1000, key = NULL WHERE id BETWEEN 5 AND 8")
        source.execute("DELETE FROM orders WHERE id BETWEEN 30 AND 40")
        source.execute("INSERT INTO orders (id, at, body) VALUES (30, '24:00', 'new'), (2000, '00:00:00.5', NULL)")
        source.execute("DELETE FROM side.loose WHERE ctid = (SELECT min(ctid) FROM side.loose)")
        source.execute("INSERT INTO side.loose VALUES (7, 'NaN'), (NULL, NULL)")
        caught_up()
        assert dump(target) == dump(database)
        # Columns: a new one, one with another name, one that goes and comes again as another; tables with other names.
        source.execute("ALTER TABLE orders ADD COLUMN more int")
        source.execute("ALTER TABLE orders RENAME COLUMN body TO words")
        source.execute("UPDATE orders SET more = id, words = 'w' WHERE id < 10")
        source.execute("ALTER TABLE orders DROP COLUMN feels")
        source.execute("ALTER TABLE orders ADD COLUMN feels text")
        source.execute("UPDATE orders SET feels = 'fine' WHERE id = 2")
        source.execute("ALTER TABLE orders ALTER COLUMN paid TYPE numeric(12, 2)")
        source.execute("INSERT INTO orders (id, paid) VALUES (3000, 1234567890.12)")
        source.execute("ALTER TABLE side.loose RENAME TO looser; INSERT INTO side.looser VALUES (9, 9)")
        source.execute("""ALTER TABLE "Odd name, with = signs" SET SCHEMA side""")
        source.execute("""INSERT INTO side."Odd name, with = signs" VALUES (3, 'y')""")
        said = caught_up()
        assert dump(target) == dump(database)
        assert not [one for one in said if "again" in one], said
        # A label that is new, an attribute that is new, and another key.
        source.execute("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'")
        source.execute("CREATE TABLE moods (id int PRIMARY KEY, feels mood); INSERT INTO moods VALUES (1, 'glad')")
        source.execute("TRUNCATE orders; INSERT INTO orders (id, words) VALUES (1, 'after')")
        source.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, words)")
        source.execute("INSERT INTO orders (id, words) VALUES (1, 'another'); DELETE FROM orders WHERE words = 'after'")
        caught_up()
        assert dump(target) == dump(database)


def test_a_reader_of_two_tables_never_sees_half_a_transaction(
    database: str, target: str, tmp_path: Path, slot: str, spark: SparkSession
) -> None:
    """Each transaction moves an amount from one table to the other."""
    reader: list[tuple[int, int]] = []
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int)")
        source.execute("CREATE PUBLICATION p FOR ALL TABLES")
        source.execute("INSERT INTO a SELECT g, 10 FROM generate_series(1, 50) g; INSERT INTO b SELECT id, 10 FROM a")
        with (
            running(tmp_path, database, slot, target, spark),
            in_background(lambda stop: sums(target, stop, reader), "reader"),
        ):
            for number in range(300):
                source.execute(
                    f"BEGIN; UPDATE a SET n = n - 1 WHERE id = {number % 50 + 1};"
                    f" UPDATE b SET n = n + 1 WHERE id = {number * 7 % 50 + 1}; COMMIT".encode()
                )
                if number % 60 == 59:
                    wait_until(lambda: dump(target) == dump(database), "all changes are there")
    assert {total for total, _ in reader} == {1000}
    assert len({first for _, first in reader}) > 3, "it looked while changes came"


def wait_ready(pipeline: Pipeline) -> None:
    def is_ready() -> bool:
        status = pipeline.status()
        return status is not None and bool(status.tables) and all(one.phase == "ready" for one in status.tables)

    wait_until(is_ready, "all tables are ready")


def sums(url: str, stop: threading.Event, found: list[tuple[int, int]]) -> None:
    """What both tables hold together, and what the first does, again and again."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            ((a, b),) = connection.execute("SELECT (SELECT sum(n) FROM a), (SELECT sum(n) FROM b)").fetchall()
            found.append((a + b, a))


def test_rows_changed_behind_its_back_are_found_and_put_right(
    database: str, target: str, tmp_path: Path, slot: str, spark: SparkSession
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        source.execute("CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES")
        catch_up(tmp_path, database, slot, target, spark)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("UPDATE orders SET both_of = ROW(7, 'other')::pair, took = '1 s' WHERE id = 7")
            connection.execute("DELETE FROM orders WHERE id = 8; INSERT INTO orders (id) VALUES (-1)")
            connection.execute("INSERT INTO side.loose VALUES (1, 0)")
        with running(tmp_path, database, slot, target, spark) as pipeline:
            source.execute("UPDATE orders SET paid = 1 WHERE id < 5")
            found = {one.name.name: one for one in pipeline.verify().tables}
            assert len(found["orders"].differences) == 3 and len(found["loose"].differences) == 1
            assert not found["bare"].differences
            mended = pipeline.verify(repair=True)
            assert mended.exit_code == 0, mended.to_json()
            assert pipeline.verify().exit_code == 0
        assert dump(target) == dump(database)
