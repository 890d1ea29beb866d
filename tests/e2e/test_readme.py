"""What the README shows works as it stands; only the address of the database is ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
ADDRESS = "postgresql://me@db.example.com:5432/app"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY); CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        for block in blocks("sql"):
            connection.execute(block)  # type: ignore[call-overload]
    return database


def test_the_commands_run(shop: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("walrelay")]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(
            command.replace(ADDRESS, shop), shell=True, capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PATH": path}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "shop.duckdb").exists()


def test_the_python_runs(shop: str, tmp_path: Path) -> None:
    pipeline, frame = blocks("python")
    session = "from walrelay.spark.session import spark_session\nspark = spark_session()"
    script = f"{pipeline}\n{session}\n{frame}\nprint(orders.count())\n"
    done = subprocess.run(
        [sys.executable, "-c", script.replace(ADDRESS, shop)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 Counter()", "2"]


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_file_the_architecture_names_exists() -> None:
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()):
        assert (ROOT / "src" / "walrelay" / name).exists() or (ROOT / name).exists(), name
