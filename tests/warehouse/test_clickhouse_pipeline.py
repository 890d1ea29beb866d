"""Pipelines into ClickHouse, end to end: DDL, histories, killed drivers, `verify`, the example and the page."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from tests.e2e.test_readme import ADDRESS, blocks, commands, run_command
from tests.faults.pipeline_kit import Driver, drop_slot
from tests.lake.test_lake_crashes import CHANGING, COPYING, PATIENCE, TABLES, changes, copy_again
from tests.repetitions import some
from tests.session_kit import JAVA_OPTIONS
from tests.warehouse.clickhouse_kit import ClickHouse, catch_up, clickhouse, clickhouse_spark, place
from walrelay import SqliteStore
from walrelay.config.settings import copy_settings
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.postgres.source import PostgresSource
from walrelay.spark.class_archive import archive_options
from walrelay.spark.session import LOCAL_SETTINGS
from walrelay.verify.report import VerifyReport
from walrelay.verify.run import VerifyParts, verify

__all__ = ["clickhouse", "clickhouse_spark", "place"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
SHOP = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE orders (id bigint PRIMARY KEY, paid numeric(8, 2), body text, tags text[], feels mood, span int4range);
ALTER TABLE orders ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE loose (n int, f float8);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id uuid PRIMARY KEY, at timestamptz);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO orders SELECT g, g / 3.0, repeat(md5(g::text), 100), ARRAY['a', NULL, g::text], 'ok', int4range(g, g + 2)
    FROM generate_series(1, 300) g;
INSERT INTO orders VALUES (1000, NULL, NULL, NULL, NULL, NULL), (1001, 0, '', '{}', 'sad', 'empty');
INSERT INTO loose SELECT g % 5, CASE WHEN g % 2 = 0 THEN '-0.0'::float8 ELSE 0 END FROM generate_series(1, 50) g;
INSERT INTO sales.orders SELECT md5(g::text)::uuid, '2020-01-01'::timestamptz + g * interval '1 hour'
    FROM generate_series(1, 20) g;
"""
STEPS = (
    "UPDATE orders SET paid = paid + 1 WHERE id % 3 = 0",
    "UPDATE orders SET id = id + 5000 WHERE id % 7 = 0; DELETE FROM orders WHERE id % 11 = 0",
    "ALTER TABLE orders ADD COLUMN more int; UPDATE orders SET more = 1 WHERE id % 5 = 0",
    "ALTER TABLE orders RENAME COLUMN paid TO cost; ALTER TABLE orders ALTER COLUMN cost TYPE numeric(12, 2)",
    "UPDATE orders SET cost = 1234567890.12, tags = NULL WHERE id % 2 = 0",
    "ALTER TABLE orders DROP COLUMN feels; INSERT INTO orders (id, body) VALUES (9999, 'last')",
    "DELETE FROM loose WHERE ctid IN (SELECT min(ctid) FROM loose GROUP BY n); UPDATE loose SET f = 2 WHERE n = 1",
    "TRUNCATE sales.orders; INSERT INTO sales.orders VALUES ('00000000-0000-0000-0000-000000000001', NULL)",
    "ALTER TABLE loose RENAME TO tight; INSERT INTO tight VALUES (7, 'NaN')",
)


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"clickhouse_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def told(value: Any) -> Any:
    """A value of either side, so that both are compared by what they are."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)  # whether a client says the zone depends on its machine's
    if hasattr(value, "lower_inc"):  # a range of psycopg's
        return "empty" if value.isempty else (value.lower, value.upper, value.lower_inc, value.upper_inc)
    if isinstance(value, dict):
        return "empty" if value["empty"] else tuple(value[n] for n in ("lower", "upper", "lower_inc", "upper_inc"))
    return tuple(value) if isinstance(value, list) else value


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """Without the marks, by which an array is NULL."""
    made = {
        name: None if row.get(f"{name}_is_null") else told(value)
        for name, value in row.items()
        if not name.endswith("_is_null")
    }
    return tuple(sorted(made.items(), key=lambda pair: pair[0]))


def assert_same(source: psycopg.Connection[Any], server: ClickHouse, place: str, *tables: str) -> None:
    """By what both clients give, neither of which is ours."""
    client = server.client()
    for table in tables:
        with source.cursor(row_factory=dict_row) as cursor:
            there = Counter(shown(row) for row in cursor.execute(f"SELECT * FROM {table}").fetchall())  # type: ignore[call-overload]
        found = client.query(f"SELECT * FROM {place}.`{table}`")
        here = Counter(shown(row) for row in found.named_results())
        assert not there - here and not here - there, f"{table}: missing {there - here}, too many {here - there}"
    client.close()


def verified(database: str, url: str, directory: Path, *, repair: bool = False) -> VerifyReport:
    store = SqliteStore(directory / "state.sqlite", "walrelay")
    try:
        source = PostgresSource(database, publication="p")
        parts = VerifyParts(
            "walrelay", source, ClickHouseDestination(url), store, str(directory / "log"), copy_settings()
        )
        return verify(parts, repair=repair)
    finally:
        store.close()


@pytest.mark.long
def test_a_pipeline_follows_changes_and_ddl_and_verify_says_so(
    database: str, slot: str, clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, tmp_path: Path
) -> None:
    url = clickhouse.url(place, history="yes")

    def caught_up() -> Any:
        return catch_up(ClickHouseDestination(url), tmp_path, database, slot, clickhouse_spark)

    with psycopg.connect(database, autocommit=True) as source:
        source.execute(SHOP)
        caught_up()
        assert_same(source, clickhouse, place, "orders", "loose", "sales.orders")
        assert [one.status for one in verified(database, url, tmp_path).tables] == ["equal"] * 3
        for number, step in enumerate(STEPS):
            source.execute(step)  # type: ignore[call-overload]
            if number in some((3, 8), tuple(range(len(STEPS)))):
                notices = caught_up()
                assert not notices.copied, notices.heard
        assert_same(source, clickhouse, place, "orders", "tight", "sales.orders")
        report = verified(database, url, tmp_path)
        assert [(one.status, one.reason) for one in report.tables] == [("equal", None)] * 3
        kept = clickhouse.ask(f"SELECT _op, count() FROM {place}.`sales.orders_history` GROUP BY _op ORDER BY _op")
        assert kept == [("copy", 1), ("insert", 1), ("truncate", 1)]
        told = clickhouse.ask(f"SELECT _op, body, cost FROM {place}.orders_history WHERE id = 9999")
        assert told == [("insert", "last", None)]
        tamper_and_repair(database, url, clickhouse, place, tmp_path)
        assert_same(source, clickhouse, place, "orders", "tight", "sales.orders")


def tamper_and_repair(database: str, url: str, clickhouse: ClickHouse, place: str, directory: Path) -> None:
    client = clickhouse.client()
    storages = dict(
        clickhouse.ask(
            f'SELECT name, extract(comment, \'"storage":"([^"]+)"\') FROM system.tables WHERE database = \'{place}\''
            " AND startsWith(comment, '{\"walrelay\":')"
        )
    )
    wait = {"mutations_sync": 2}
    orders, tight = (f"{place}.{storages[name]}" for name in ("orders", "tight"))
    client.command(f"ALTER TABLE {orders} DELETE WHERE c1 IN (2, 4)", settings=wait)
    client.command(f"ALTER TABLE {orders} UPDATE c3 = 'wrong' WHERE c1 = 5", settings=wait)
    client.command(f"ALTER TABLE {tight} DELETE WHERE c1 = 3", settings=wait)
    client.close()
    report = {str(one.name): one for one in verified(database, url, directory).tables}
    found = {name: one.status for name, one in report.items()}
    assert found == {"public.orders": "different", "public.tight": "different", "sales.orders": "equal"}
    rows = {one.key["id"]: one.kind for one in report["public.orders"].differences}
    assert rows == {"2": "missing", "4": "missing", "5": "changed"}
    repaired = verified(database, url, directory, repair=True)
    assert all(one.status == "equal" for one in repaired.tables) and sum(one.repaired for one in repaired.tables) > 3
    assert all(one.status == "equal" for one in verified(database, url, directory).tables)
    left = clickhouse.ask(f"SELECT name FROM system.tables WHERE database = '{place}' AND name LIKE '%look%'")
    assert not left, "clones are gone"


@pytest.mark.long
def test_values_that_policy_treated_are_known_to_verify(
    database: str, slot: str, clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(
            "CREATE TABLE odd (id int PRIMARY KEY, at timestamptz, day date, big numeric(50, 2), took interval,"
            " stay tstzrange, days date[]); CREATE PUBLICATION p FOR ALL TABLES;"
            " INSERT INTO odd VALUES (0, NULL, NULL, 1, NULL, '[2020-01-01,infinity)', '{2020-01-01,infinity}'),"
            " (1, 'infinity', '2020-01-01', 1, '1 day', '[2020-01-01,)', '{NULL}'),"
            " (2, '12000-01-01', '0099-01-01 BC', 'NaN', 'infinity', NULL, NULL),"
            " (3, '2020-01-01', '-infinity', 99999999999999999999999999999999999999999.5, NULL, NULL, NULL)"
        )
        notices = catch_up(ClickHouseDestination(clickhouse.url(place)), tmp_path, database, slot, clickhouse_spark)
    assert {kind.name: count for kind, count in notices.treated.items()} == {
        "TIMESTAMP_INFINITY": 2, "TIMESTAMP_YEARS": 1, "DATE_YEARS": 1, "DATE_INFINITY": 2, "NUMERIC_NAN": 1,
        "INTERVAL_INFINITY": 1,
    }  # fmt: skip
    (report,) = verified(database, clickhouse.url(place), tmp_path).tables
    assert (report.status, report.treated_rows) == ("equal", 4), report


@pytest.mark.long
def test_drivers_killed_at_every_place_lose_nothing_and_double_nothing(
    database: str, slot: str, clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, tmp_path: Path
) -> None:
    url = clickhouse.url(place)

    def killed(at: str) -> None:
        quick = {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}
        driver = Driver(database, slot, tmp_path, failpoints=at, lake=url, spark=quick)
        try:
            driver.wait_killed(PATIENCE)
        finally:
            driver.close()

    def caught_up() -> Any:
        return catch_up(ClickHouseDestination(url), tmp_path, database, slot, clickhouse_spark, id_="killed")

    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TABLES)
        for number, at in enumerate(COPYING):
            if number:
                source.execute(changes(number))
                copy_again(tmp_path)
            killed(at)
            caught_up()
            assert_same(source, clickhouse, place, "orders", "loose", "ledger")
        for number, at in enumerate(CHANGING, len(COPYING)):
            source.execute(changes(number))
            killed(at)
            notices = caught_up()
            assert not notices.copied, f"{at}: the copy would hide what is wrong; {notices.heard}"
            assert_same(source, clickhouse, place, "orders", "loose", "ledger")
    left = clickhouse.ask(f"SELECT count() FROM system.tables WHERE database = '{place}' AND name LIKE '%stage%'")
    assert left == [(0,)], "what killed runs have left is gone"


@pytest.mark.long
def test_the_example(database: str, clickhouse: ClickHouse, place: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
        source.execute("CREATE PUBLICATION p FOR ALL TABLES")
        quick = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive_options()}"
        command = [sys.executable, str(ROOT / "examples" / "into_clickhouse.py"), database, "p", clickhouse.url(place)]
        done = subprocess.run(
            [*command, str(tmp_path)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": quick},
            check=False,
        )
        assert done.stdout == "2 rows copied, 0 changes\n", done.stderr
        source.execute("SELECT pg_drop_replication_slot('into_clickhouse')")
    assert [row["id"] for row in clickhouse.rows(place, "orders")] == [1, 2]


@pytest.mark.long
def test_the_page_works_as_it_stands(
    database: str,
    clickhouse: ClickHouse,
    clickhouse_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", LOCAL_SETTINGS[JAVA_OPTIONS])
    monkeypatch.chdir(tmp_path)
    page, place = "docs/destinations/clickhouse.md", clickhouse.create_database()
    here = "clickhouse://relay:secret@ch.example.com:8123/shop"
    (pipeline,) = blocks("python", page)
    command = next(one for one in commands(page) if "replicate" in one)
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE orders")
        source.execute("INSERT INTO orders VALUES (1), (2)")
        assert here in pipeline and here in command
        run_command(command.replace(here, clickhouse.url(place)), database, tmp_path)
        assert len(clickhouse.rows(place, "orders")) == 2
        source.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        clickhouse.drop_database(place)
        clickhouse.client().command(f"CREATE DATABASE {place}")
        script = pipeline.replace(ADDRESS, database).replace(here, clickhouse.url(place))
        exec(compile(script, "page", "exec"), {})
        source.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    assert len(clickhouse.rows(place, "orders")) == 2
    clickhouse.drop_database(place)


@pytest.mark.long
def test_the_proof_for_real_servers_runs(clickhouse: ClickHouse, place: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "prove-clickhouse"), clickhouse.url(place), "--rows", "2000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "proved" in done.stdout
