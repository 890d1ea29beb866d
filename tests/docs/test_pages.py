"""Each command, script and statement of the documentation is run: here, by the test that is named, or not, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.docs.pages import LANGUAGES, ROOT, Walk, all_pages, blocks_of, free_slots, runnable, sharing_spark
from tests.e2e.test_readme import ADDRESS
from walrelay.cli.app import app

COMMAND = "postgresql://me@db.example.com:5432/app duckdb:///shop.duckdb --publication shop --until caught-up"

WALKED: dict[str, dict[str, str]] = {
    "docs/how-to/add-a-table.md": {},
    "docs/how-to/configure-postgres.md": {"ALTER SYSTEM": "it is for a server of one's own; the tests' has it"},
    "docs/how-to/follow-ddl.md": {},
    "docs/how-to/managed-services.md": {"GRANT rds_replication": "in tests/integration/test_preflight.py"},
    "docs/how-to/recover.md": {},
    "docs/how-to/run-on-a-cluster.md": {"walrelay replicate": "in tests/spark/test_cluster.py, on a cluster"},
    "docs/how-to/upgrade.md": {"python -m walrelay.decode.warm": "compiles for minutes what make env has compiled"},
    "docs/how-to/verify.md": {},
    "docs/index.md": {"make demo": "in tests/e2e/test_demo.py"},
}
"""Pages that are walked below, and what of them is not run."""
ELSEWHERE = {
    "README.md": "tests/e2e/test_readme.py",
    "docs/change-log.md": "tests/e2e/test_readme.py",
    "docs/how-to/run-a-pipeline.md": "tests/e2e/test_readme.py",
    "docs/testing.md": "tests/e2e/test_readme.py",
    "docs/destinations/duckdb.md": "tests/e2e/test_readme.py",
    "docs/destinations/delta.md": "tests/lake/test_lake_pages.py",
    "docs/destinations/iceberg.md": "tests/lake/test_lake_pages.py",
    "docs/destinations/bigquery.md": "tests/warehouse/test_warehouse_pages.py",
    "docs/destinations/snowflake.md": "tests/warehouse/test_warehouse_pages.py",
    "docs/destinations/clickhouse.md": "tests/warehouse/test_destination_pages.py",
    "docs/destinations/postgres.md": "tests/warehouse/test_destination_pages.py",
    "docs/how-to/write-a-destination.md": "tests/contract/test_written_destination.py",
    "docs/how-to/write-a-store.md": "tests/contract/test_written_store.py",
    "docs/how-to/deploy.md": "tests/unit/test_deploy.py",
    "docs/how-to/monitor.md": "tests/e2e/test_monitor_page.py",
    "docs/how-to/shape-tables.md": "tests/spark/test_shaping_page.py",
    "docs/reference/config.md": "tests/e2e/test_config_commands.py",
    "docs/tutorial/first-pipeline.md": "tests/docs/test_tutorial.py",
    "docs/tutorial/stores-and-destinations.md": "tests/docs/test_tutorial.py",
    "CONTRIBUTING.md": "nobody: its commands are those of the Makefile, which CI runs",
}
"""Pages that a test of their own runs whole: it fails when a block comes that it does not know."""


def test_every_page_with_something_to_run_is_run() -> None:
    found = {page for page in all_pages() if runnable(page)}
    assert found == {page for page in (WALKED | ELSEWHERE) if (ROOT / page).exists() and runnable(page)}


@pytest.mark.parametrize("page", [page for page in ELSEWHERE if (ROOT / page).exists()])
def test_the_test_that_runs_a_page_names_it(page: str) -> None:
    test = ELSEWHERE[page]
    if not test.startswith("nobody: "):
        text = (ROOT / test).read_text()
        name = Path(page).stem
        assert page in text or f'"{name}"' in text or f'"{name}.md"' in text or "{place.name}" in text, (
            f"{test} does not speak of {page}"
        )


def test_what_a_reader_runs_says_its_language() -> None:
    """Else nobody would know that it is to be run."""
    words = ("walrelay ", "$ ", "pip ", "python ", "make ", "import ", "from ", "CREATE ", "ALTER ", "SELECT ")
    silent = [
        f"{page}: {block.text.splitlines()[0]}"
        for page in all_pages()
        for block in blocks_of(page)
        if block.language == "" and block.text.startswith(words)
    ]
    assert silent == []


def test_no_excuse_is_without_its_command() -> None:
    for page, excuses in WALKED.items():
        there = [line for block in runnable(page) for line in [block.text, *block.lines()]]
        stale = [excuse for excuse in excuses if not any(line.startswith(excuse) for line in there)]
        assert stale == [], page
    assert "text" not in LANGUAGES


@pytest.fixture
def shop(database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with two tables, and a pipeline that has run once, whose state is in the folder."""
    monkeypatch.chdir(tmp_path)
    sharing_spark(monkeypatch)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
        connection.execute("CREATE PUBLICATION shop FOR TABLE customers, orders")
    with free_slots(database):
        yield database


def has_run(url: str) -> None:
    done = CliRunner().invoke(app, ["replicate", *COMMAND.replace(ADDRESS, url).split()])
    assert done.exit_code == 0, done.output


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WALKED)
def test_the_page_works_as_it_stands(page: str, shop: str, tmp_path: Path) -> None:
    walk = Walk(page, shop, tmp_path, WALKED[page])
    if page in ("docs/how-to/recover.md", "docs/how-to/upgrade.md", "docs/how-to/verify.md"):
        has_run(shop)
    if page.endswith("recover.md"):
        walk.exit_codes = {"walrelay status --running": 3}  # nobody runs it just now, as the page says
    with psycopg.connect(shop, autocommit=True) as connection:
        if page.endswith("managed-services.md"):
            connection.execute("CREATE ROLE relay")
        try:
            walk.go()
            if page.endswith("configure-postgres.md"):
                assert_the_role_suffices(walk)
        finally:
            if connection.execute("SELECT FROM pg_roles WHERE rolname = 'relay'").fetchone() is not None:
                connection.execute("DROP OWNED BY relay; DROP ROLE relay")


def assert_the_role_suffices(walk: Walk) -> None:
    """What the page grants is all that a pipeline needs."""
    url = walk.url.replace("postgres@", "relay:choose-one@")
    assert url != walk.url
    done = CliRunner().invoke(app, ["preflight", url, "--publication", "shop_part"])
    assert done.exit_code == 0, done.output
