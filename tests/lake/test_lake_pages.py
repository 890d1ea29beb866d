"""What the pages about lakes show works as it stands."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.e2e.test_readme import ADDRESS, blocks, commands, run_command
from tests.session_kit import JAVA_OPTIONS
from walrelay.spark.session import LOCAL_SETTINGS

pytestmark = pytest.mark.timeout(600)
FREE_SLOTS = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"


@pytest.mark.parametrize("page", ["delta", "iceberg"])
def test_the_page_works_as_it_stands(
    page: str, database: str, tmp_path: Path, lake_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A JVM for its command alone; it lives for seconds, as those of other tests.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", LOCAL_SETTINGS[JAVA_OPTIONS])
    monkeypatch.chdir(tmp_path)
    pipeline, read = blocks("python", f"docs/destinations/{page}.md")
    (command,) = commands(f"docs/destinations/{page}.md")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE orders")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        run_command(command, database, tmp_path)
        assert said(read, database) == ["2"]
        # What was made is dropped at the source and made anew: it comes again under its name.
        connection.execute("DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, more text)")
        connection.execute("ALTER PUBLICATION shop ADD TABLE orders; INSERT INTO orders VALUES (3, 'x')")
        connection.execute(FREE_SLOTS)
        (tmp_path / "walrelay-state").rename(tmp_path / "earlier")
        said(pipeline, database)
        assert said(read, database) == ["1"]
        connection.execute(FREE_SLOTS)


def said(script: str, url: str) -> list[str]:
    """What the page's Python prints, run here: Spark is up already."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script.replace(ADDRESS, url), "page", "exec"), {})
    return out.getvalue().splitlines()
