"""What the page about Delta shows works as it stands."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.e2e.test_readme import blocks, commands, run_command, run_python
from walrelay.spark.session import stop_session

PAGE = "docs/destinations/delta.md"
pytestmark = pytest.mark.timeout(600)


def test_the_page_about_delta_works_as_it_stands(database: str, tmp_path: Path, lake_spark: SparkSession) -> None:
    stop_session()  # the commands have their own
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE orders")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        pipeline, read = blocks("python", PAGE)
        (command,) = commands(PAGE)
        run_command(command, database, tmp_path)
        assert run_python(read, database, tmp_path) == ["2"]
        # What was made is dropped at the source and made anew: it comes again under its name.
        connection.execute("DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, more text)")
        connection.execute("ALTER PUBLICATION shop ADD TABLE orders; INSERT INTO orders VALUES (3, 'x')")
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        (tmp_path / "walrelay-state").rename(tmp_path / "earlier")
        run_python(pipeline, database, tmp_path)
        assert run_python(read, database, tmp_path) == ["1"]
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
