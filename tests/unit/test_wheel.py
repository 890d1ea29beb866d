"""The wheel has all that the sources have, and works without them; `make wheel` runs pipelines from it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import sys
import walrelay
from importlib.resources import files
from walrelay.destinations.duckdb.progress import metadata_sql
from walrelay.cli.app import main
assert walrelay.__file__.startswith(sys.argv.pop(1)), walrelay.__file__
assert metadata_sql() and files("walrelay").joinpath("py.typed").is_file()
assert files("walrelay.spark").joinpath("log4j2.properties").is_file()
main(["--version"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def test_every_file_of_the_sources_is_in_the_wheel(wheel: Path) -> None:
    sources = {
        str(file.relative_to(ROOT / "src"))
        for package in ("walrelay", "pyspark_walrelay")
        for file in (ROOT / "src" / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {"walrelay/py.typed", "walrelay/spark/log4j2.properties", "walrelay/postgres/sql/slot.sql"} <= held
    assert held == sources


def test_what_is_in_the_wheel_works_by_itself(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)], cwd=tmp_path, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("walrelay 0.")
