"""Both tutorials, followed literally in an empty folder: with the server that they start, one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import Walk, blocks_of, runnable, sharing_spark

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(900)]
FIRST, OWN = "docs/tutorial/first-pipeline.md", "docs/tutorial/stores-and-destinations.md"
EXCUSED = {
    "python3 -m venv": "the environment of the tests has it",
    ". venv/bin/activate": "the same",
    "pip install": "the same; tests install nothing",
    "python server.py": "the fixture does it, in a process of its own, as the page says",
    "pytest -q test_lines.py": "run apart, in a process of its own",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one, in which the page's own server runs; what it prints was pasted."""
    monkeypatch.chdir(tmp_path)
    sharing_spark(monkeypatch)
    (server,) = (block for block in blocks_of(FIRST) if block.title == "server.py")
    (tmp_path / "server.py").write_text(server.text)
    running = subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdin is not None and running.stdout is not None
    try:
        for _ in range(2):
            name, value = re.fullmatch(r"export (\w+)=['\"](.*)['\"]\n", running.stdout.readline()).groups()  # type: ignore[union-attr]
            monkeypatch.setenv(name, os.path.expandvars(value))
        yield tmp_path
    finally:
        running.stdin.write("\n")
        running.stdin.close()
        running.wait(60)
        running.stdout.close()


def shown(page: str, number: int) -> list[str]:
    """The lines of an output that the page shows."""
    return [block.text for block in blocks_of(page) if block.language == "text"][number].splitlines()


def test_the_tutorials_work_as_they_stand(folder: Path, spark: SparkSession, without_delta: list[str]) -> None:
    if without_delta:
        pytest.skip(without_delta[0])
    first = Walk(FIRST, "", folder, EXCUSED)
    *most, cleaning = runnable(FIRST)
    for block in most:
        first.run(block)
    for number in range(3):
        assert any(said.splitlines() == shown(FIRST, number) for said in first.said), (number, first.said)

    own = Walk(OWN, "", folder, EXCUSED)
    own.go()
    assert any("10090 rows copied, 0 changes" in said for said in own.said), own.said
    phases = {"-> init", "-> data_sync", "-> finished_copy", "-> sync_done", "-> ready"}
    assert any(phases <= set(said.splitlines()) for said in own.said)
    (row,) = shown(OWN, 0)
    assert f"{row}\n" in own.said
    summary, change = shown(OWN, 1)
    assert any(summary in said.splitlines() for said in own.said)
    found = json.loads(own.said[-1])
    example = json.loads(change)
    assert found.keys() == example.keys()
    stable = {"table", "op", "ordinal", "schema_version", "row", "old", "old_kind", "unchanged"}
    assert {key: found[key] for key in stable} == {key: example[key] for key in stable}

    some = "copied_side_by_side or special"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lines.py", "-k", some]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and re.search(r"\d passed", done.stdout), done.stdout
    with psycopg.connect(os.environ["SOURCE"], autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot('walrelay_own')")
        first.run(cleaning)
        assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
