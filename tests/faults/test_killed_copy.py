"""Copies that are killed, or that meet another: a reader sees the old or the new table, and nothing is left over."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.repetitions import some
from walrelay.destinations.duckdb.load import BUILDING

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
CHILD = Path(__file__).parent / "copy_child.py"
ROWS = 60_000
KILLS = some(2, 10)
HOLDER = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(600)"


def start(url: str, path: Path, *, busy_seconds: int = 60) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), url, str(path), str(busy_seconds)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def lines(child: subprocess.Popen[str]) -> Iterator[str]:
    assert child.stdout is not None
    for line in child.stdout:
        yield line.strip()


def wait_for(child: subprocess.Popen[str], word: str) -> str:
    for line in lines(child):
        if line.startswith(word):
            return line
    raise AssertionError(f"the copy ended without saying {word!r}")


@pytest.fixture
def generations(database: str) -> str:
    """Two tables that always say the same generation, so that a mixture would show."""
    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("a", "b"):
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, generation int, filler text)")  # type: ignore[call-overload]
            connection.execute(  # type: ignore[call-overload]
                f"INSERT INTO {table} SELECT g, 0, repeat('x', 100) FROM generate_series(1, {ROWS}) g"
            )
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    return database


def next_generation(url: str, generation: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE a SET generation = %s", (generation,))
        connection.execute("UPDATE b SET generation = %s", (generation,))


def read_whole_tables(path: Path, *, complete: bool = True) -> dict[str, int]:
    """Each table's generation; fails when a table is not whole. Unless all is `complete`, one may be half built."""
    found = {}
    with duckdb.connect(str(path)) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'public'").fetchall()
        for (table,) in tables:
            if table.startswith(BUILDING) and not complete:
                continue
            row = connection.execute(
                f"SELECT count(*), count(DISTINCT id), min(generation), max(generation) FROM public.{table}"
            ).fetchone()
            assert row is not None
            assert row[:2] == (ROWS, ROWS) and row[2] == row[3], f"{table} is not whole: {row}"
            found[table] = row[2]
    return found


def test_copies_killed_at_random_moments_leave_whole_tables_and_no_leftovers(generations: str, tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    chance = random.Random(7)
    for generation in range(1, KILLS + 1):
        next_generation(generations, generation)
        child = start(generations, path)
        # Half of the kills fall into the reading, half into the loading, at a random moment.
        wait_for(child, ("started", "writing")[generation % 2])
        time.sleep(chance.uniform(0, 0.8))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if path.exists():
            assert set(read_whole_tables(path, complete=False).values()) <= set(range(generation + 1))
    child = start(generations, path)
    assert wait_for(child, "rows") == f"rows {2 * ROWS}"
    assert child.wait() == 0
    assert read_whole_tables(path) == {"a": KILLS, "b": KILLS}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.duckdb"]


def test_a_second_run_on_the_same_file_waits_and_says_so(generations: str, tmp_path: Path) -> None:
    first = start(generations, tmp_path / "out.duckdb")
    wait_for(first, "started")
    second = start(generations, tmp_path / "out.duckdb")
    told = wait_for(second, "notice")
    assert "waiting for another walrelay run" in told and str(first.pid) in told
    assert wait_for(second, "rows") == f"rows {2 * ROWS}"
    assert (first.wait(), second.wait()) == (0, 0)
    assert set(read_whole_tables(tmp_path / "out.duckdb")) == {"a", "b"}


def test_a_file_held_by_another_program_is_waited_for_then_a_clear_failure(generations: str, tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert next(lines(holder)) == "open"
        child = start(generations, path, busy_seconds=2)
        assert f"process {holder.pid}" in wait_for(child, "notice")
        assert wait_for(child, "failed") == "failed destination.busy"
        assert child.wait() == 1
    finally:
        holder.kill()
        holder.wait()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.duckdb"]
