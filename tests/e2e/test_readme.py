"""What the README and some pages show works as it stands; only the address of the database is ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
ADDRESS = "postgresql://me@db.example.com:5432/app"


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def commands(page: str) -> list[str]:
    return [line for block in blocks("sh", page) for line in block.splitlines() if line.startswith("walrelay")]


def run_command(command: str, url: str, directory: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command.replace(ADDRESS, url), shell=True, capture_output=True, text=True, cwd=directory,
        env={**os.environ, "PATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY); CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        for block in blocks("sql"):
            connection.execute(block)  # type: ignore[call-overload]
    yield database
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def run_python(script: str, url: str, directory: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script.replace(ADDRESS, url)], capture_output=True, text=True, cwd=directory, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


SESSION = "from walrelay.spark.session import spark_session\nspark = spark_session()\n"


RUNNING = "docs/how-to/run-a-pipeline.md"


def test_the_readme_shows_what_is_run_on_the_page_about_running_a_pipeline() -> None:
    assert [command.split()[1] for command in commands("README.md")] == ["replicate"]
    assert set(commands("README.md")) <= set(commands(RUNNING))
    for language in ("python", "sql"):
        assert blocks(language) and set(blocks(language)) <= set(blocks(language, RUNNING))


def test_the_page_about_running_a_pipeline_works_as_it_stands(shop: str, tmp_path: Path) -> None:
    found = commands(RUNNING)
    said = [command.split()[1] for command in found]
    assert said[:5] == ["preflight", "replicate", "status", "replicate", "verify"]
    assert said[5:] == ["resync", "pause", "resume", "replicate", "capture"]
    for command in found:
        run_command(command, shop, tmp_path)
    assert (tmp_path / "shop.duckdb").exists()
    pipeline, frame, stream = blocks("python", RUNNING)
    said = run_python(
        f"{pipeline}\n{SESSION}{frame}\nprint(orders.count())\n{stream}\nprint(changes.isStreaming)\n", shop, tmp_path
    )
    assert said == ["2 Counter()", "2", "True"]


def test_the_page_about_the_change_log_works_as_it_stands(shop: str, tmp_path: Path) -> None:
    capture, *replays = commands("docs/change-log.md")
    run_command(capture, shop, tmp_path)
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("INSERT INTO orders VALUES (3)")
    stream, capturing = blocks("python", "docs/change-log.md")
    assert len(run_python(capturing, shop, tmp_path)) == 2
    assert run_python(f"{SESSION}{stream}\nprint(orders.schema['row'].dataType.names)", shop, tmp_path) == ["['id']"]
    for command in replays:
        run_command(command, shop, tmp_path)


def test_the_page_about_duckdb_works_as_it_stands(shop: str, tmp_path: Path) -> None:
    (command,) = commands("docs/destinations/duckdb.md")
    run_command(command, shop, tmp_path)
    assert (tmp_path / "shop.duckdb").exists()


def test_the_page_about_testing_works_as_it_stands(tmp_path: Path) -> None:
    pipeline, contract = blocks("python", "docs/testing.md")
    (tmp_path / "test_orders.py").write_text(pipeline)
    (tmp_path / "test_contract.py").write_text(contract)
    some = "test_orders or copy or one_batch or knows"
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", ".", "-k", some]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^test_orders.py::\S+ PASSED", done.stdout, re.M), done.stdout
    assert re.search(r"^test_contract.py::\S+ PASSED", done.stdout, re.M), done.stdout


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_every_link_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_file_the_architecture_names_exists() -> None:
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()):
        assert (ROOT / "src" / "walrelay" / name).exists() or (ROOT / name).exists(), name
