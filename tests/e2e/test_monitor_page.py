"""What the page about monitoring shows works as it stands, on a pipeline in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.test_readme import ADDRESS, blocks
from walrelay.telemetry.metrics import METRICS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGE, PORT, PATIENCE = "docs/how-to/monitor.md", "9187", 240.0


def lines() -> list[str]:
    return [line for block in blocks("sh", PAGE) for line in block.splitlines()]


class Shell:
    """Runs the page's lines, with our database and a port that is free."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        self._env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(self, line: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._ours(line), shell=True, capture_output=True, text=True, cwd=self.directory, env=self._env, check=False
        )
        assert not ok or done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done

    @contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[bytes]]:
        with self.directory.joinpath("err").open("wb") as err:
            child = subprocess.Popen(
                "exec " + self._ours(line), shell=True, cwd=self.directory, env=self._env, stderr=err
            )
            try:
                yield child
            finally:
                child.send_signal(signal.SIGTERM)
                child.wait(60)

    def _ours(self, line: str) -> str:
        return line.replace(ADDRESS, self._url).replace(PORT, self._port)


@pytest.fixture
def shell(database: str, tmp_path: Path) -> Iterator[Shell]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders VALUES (1, 'canary-1'), (2, 'canary-2')")
        connection.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    yield Shell(database, tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def test_the_page_works_as_it_stands(shell: Shell, database: str) -> None:
    serve, metrics, health, ready, log, hooks, top, status = lines()
    with shell.running(serve) as child:
        deadline = time.monotonic() + PATIENCE
        while not shell.run(ready, ok=False).stdout.startswith('{"ready": true'):
            said = shell.directory.joinpath("err").read_text()
            assert time.monotonic() < deadline and child.poll() is None, said
            time.sleep(0.5)
        assert json.loads(shell.run(health).stdout)["healthy"]
        text = shell.run(metrics).stdout
        known = {one.name.removesuffix("_total") for one in METRICS}
        found = {family.name for family in text_string_to_metric_families(text)}
        assert found <= known and found >= {"walrelay_lag_seconds", "walrelay_memory_bytes", "walrelay_table_phase"}
        assert "canary" not in text
        frame = shell.run(top).stdout
        assert "is running" in frame and "public.orders" in frame and "1 of 1 tables ready" in frame
        assert json.loads(shell.run(status).stdout)["running"]
    assert child.returncode == 0

    said = [json.loads(line) for line in shell.run(log).stderr.splitlines()]
    assert said[-1]["event"] == "pipeline ended" and said[-1]["outcome"] == "stopped"
    assert all(one["pipeline"] == "shop" and one["at"] for one in said)
    shell.run(hooks)
    (event,) = [json.loads(one) for one in shell.directory.joinpath("events.jsonl").read_text().split("\n") if one]
    assert event["event"] == "pipeline_ended"

    (script,) = blocks("python", PAGE)
    done = subprocess.run(
        [sys.executable, "-c", script.replace(ADDRESS, database)],
        capture_output=True, text=True, cwd=shell.directory, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0 changes; duckdb\n"), done.stderr


def test_an_address_that_is_taken_is_refused_before_anything_is_made(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        line = lines()[0].replace(PORT, str(taken.getsockname()[1]))
        done = shell.run(line + " --log-format json", ok=False)
    assert done.returncode == 1 and "(config.listen_address)" in done.stderr and "what to do" in done.stderr
    assert [one.name for one in shell.directory.iterdir()] == []
