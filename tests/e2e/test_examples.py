"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import deltalake
import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.repetitions import some
from walrelay.capture.capture import Capture
from walrelay.postgres.source import PostgresSource
from walrelay.spark.class_archive import archive_options
from walrelay.testing.spark_cluster import SparkCluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, at date)")
        connection.execute("INSERT INTO orders VALUES (1, 'infinity'), (2, '2024-02-29')")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    return database


def run(name: str, *arguments: str) -> str:
    """What the example prints. Its JVM is told to start soon, as our own are: it lives for seconds."""
    quick = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive_options()}"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": quick}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_custom_destination(shop: str, tmp_path: Path) -> None:
    earlier = tmp_path / "public.orders.csv"
    earlier.write_text('"id"\n7\n')
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("ALTER TABLE orders ADD COLUMN tags text[], ADD COLUMN span int4range")
        connection.execute("UPDATE orders SET tags = '{a,NULL}', span = '[1,3)' WHERE id = 1")
    assert run("custom_destination.py", shop, "p", str(tmp_path)) == "2 rows in 1 tables\n"
    header, *rows = earlier.read_text().splitlines()
    assert header == '"id","at","tags","span"' and len(rows) == 2, "it took the place of the earlier one"
    assert any(row.startswith('1,"infinity","[""a"", null]",') for row in rows)
    assert any(row.startswith('2,"2024-02-29",') for row in rows)
    assert [entry.name for entry in tmp_path.iterdir()] == ["public.orders.csv"]


def test_reading_into_spark(shop: str) -> None:
    said = run("read_into_spark.py", shop, "public.orders")
    assert "|-- at: date" in said and "2 rows in 1 ranges" in said


def test_streaming_changes_on_local_spark_and_on_a_cluster(shop: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = PostgresSource(shop, publication="p")
    slot = f"example_{tmp_path.name.lower().replace('-', '_')}"[:60]
    Capture(source, slot=slot, log=log).run(until="caught-up")
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("INSERT INTO orders SELECT g FROM generate_series(10, 1009) g")
        connection.execute("UPDATE orders SET at = '2024-01-01' WHERE id < 20")
        connection.execute("DELETE FROM orders WHERE id = 10")
        Capture(source, slot=slot, log=log).run(until="caught-up")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    expected = "public.orders delete 1\npublic.orders insert 1000\npublic.orders update 12\n"
    assert run("stream_changes.py", str(log)) == expected
    if not some(False, True):
        return
    # One worker is enough to be another machine; two of them work in tests/spark/test_cluster.py.
    with SparkCluster(workers=1) as cluster:
        assert run("stream_changes.py", str(log), cluster.url) == expected


@pytest.mark.parametrize("name", ["into_delta.py", "into_iceberg.py"])
def test_tables_in_a_lake(name: str, shop: str, tmp_path: Path) -> None:
    assert run(name, shop, "p", str(tmp_path)) == "2 rows copied, 0 changes\n"
    lake = tmp_path / "lake"
    if name == "into_delta.py":
        assert deltalake.DeltaTable(str(lake / "public" / "orders")).count() == 2
    else:
        catalog = SqlCatalog("walrelay", uri=f"sqlite:///{lake / 'catalog.db'}")
        assert catalog.load_table("public.orders").scan().count() == 2
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name.removesuffix(".py"),))


AT_EMULATORS = {"into_bigquery.py", "into_snowflake.py"}
"""Run by tests/warehouse/test_warehouse_pages.py, which has the services' emulators."""


def test_every_example_is_run() -> None:
    elsewhere = Path(__file__).parents[1].glob("warehouse/test_*.py")
    tested = "".join(file.read_text() for file in [Path(__file__), *elsewhere])
    assert all(f'"{example.name}"' in tested for example in EXAMPLES.glob("*.py"))
    assert all((EXAMPLES / name).exists() for name in AT_EMULATORS)
