"""Options of tables and functions on their rows, into a lake."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.lake.lake_kit import DeltaLake
from tests.shaping_kit import FUNCTIONS, OPTIONS, TABLES, assert_shaped, change
from walrelay import Pipeline, PostgresSource, SqliteStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_tables_are_shaped_on_both_roads_into_delta(database: str, tmp_path: Path, lake_spark: SparkSession) -> None:
    lake, slot = DeltaLake(tmp_path / "lake"), f"shaped_{uuid4().hex[:12]}"

    def catch_up() -> None:
        store = SqliteStore(tmp_path / "state.sqlite", "shaped")
        Pipeline(
            PostgresSource(database, publication="p"),
            lake.destination(),
            store,
            mode="both",
            spark=lake_spark,
            log=tmp_path / "log",
            slot=slot,
            tables=OPTIONS,
            transform=FUNCTIONS,
        ).run("caught-up")
        store.close()

    def read(table: str, columns: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row[name] for name in columns.split(", ")) for row in lake.held(table))

    with psycopg.connect(database, autocommit=True) as source:
        for statement in TABLES.strip().split(";\n"):
            source.execute(statement.encode())
    try:
        catch_up()
        assert_shaped(database, read, changed=False)
        change(database)
        catch_up()
        assert_shaped(database, read, changed=True)
    finally:
        drop_slot(database, slot)
    assert lake.names() == {"persons", "accounts", "moves", "notes"}
    written = b"".join(file.read_bytes() for file in (tmp_path / "lake").rglob("*") if file.is_file())
    assert b"hush" not in written
