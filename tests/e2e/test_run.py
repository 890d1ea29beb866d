"""`walrelay run`: a pipeline from its configuration, as a service runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import psycopg
import pytest

WALRELAY = str(Path(sys.executable).parent / "walrelay")
PATIENCE = 240.0


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT n, 'note ' || n FROM generate_series(1, 1000) n")
        connection.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    return database


def written(directory: Path, database: str) -> list[str]:
    """Two files, of which the second is the machine's; the command that runs them."""
    (directory / "pipeline.yaml").write_text(
        "pipeline: {every: 50ms}\n"
        "source: {url: '${SHOP}', publication: shop, slot: run_shop}\n"
        "destination: {url: 'duckdb:///shop.duckdb'}\n"
    )
    (directory / "machine.yaml").write_text("store: {path: state}\n")
    return [WALRELAY, "run", "-c", "pipeline.yaml", "-c", "machine.yaml"]


def rows(directory: Path) -> list[tuple[int, str]]:
    with duckdb.connect(str(directory / "shop.duckdb"), read_only=True) as connection:
        return connection.execute("SELECT id, note FROM public.orders ORDER BY id").fetchall()


def in_source(connection: psycopg.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT id, note FROM orders ORDER BY id").fetchall()


def wait_for_the_slot(connection: psycopg.Connection, condition: str, running: subprocess.Popen[str] | None) -> None:
    """Until the condition holds of the pipeline's slot; as long as the pipeline runs, if there is one."""
    deadline = time.monotonic() + PATIENCE
    asked = f"SELECT {condition} FROM pg_replication_slots WHERE slot_name = 'run_shop'"
    while connection.execute(asked).fetchone() != (True,):  # type: ignore[call-overload]
        assert running is None or running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, f"not in {PATIENCE} s: {condition}"
        time.sleep(0.1)


def wait_until_all_is_applied(connection: psycopg.Connection, running: subprocess.Popen[str]) -> None:
    """By a capture that is this run's own: what a killed one leaves behind has ended before."""
    [head] = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ()
    wait_for_the_slot(connection, f"active AND confirmed_flush_lsn >= '{head}'", running)


def test_a_pipeline_runs_from_its_files_is_killed_stopped_and_goes_on(shop: str, tmp_path: Path) -> None:
    command = written(tmp_path, shop)
    env = {**os.environ, "SHOP": shop}
    with psycopg.connect(shop, autocommit=True) as connection:
        with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as running:
            wait_until_all_is_applied(connection, running)
            connection.execute("UPDATE orders SET note = 'changed' WHERE id % 2 = 0")
            running.kill()
        wait_for_the_slot(connection, "NOT active", None)
        connection.execute("DELETE FROM orders WHERE id % 3 = 0")
        with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as running:
            wait_until_all_is_applied(connection, running)
            running.send_signal(signal.SIGTERM)
            said = running.communicate(timeout=PATIENCE)[1]
        assert running.returncode == 0, said
        assert "stopping" in said and "\x1b" not in said, "lines, where there is no terminal"
        connection.execute("INSERT INTO orders VALUES (5000, 'last')")
        done = subprocess.run(
            [*command, "--until", "caught-up"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert rows(tmp_path) == in_source(connection)
        connection.execute("SELECT pg_drop_replication_slot('run_shop')")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "machine.yaml",
        "pipeline.yaml",
        "shop.duckdb",
        "state",
    ]
