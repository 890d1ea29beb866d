"""Drivers that can be killed, one after the other, on the same log, store and DuckDB file."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg

from tests.faults.capture_kit import wait_until
from walrelay.postgres.source import PostgresSource
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.failpoints import ENVIRONMENT

CHILD = Path(__file__).with_name("pipeline_child.py")
PATIENCE = 90.0
OF_LAKES = {"destination.committed", "destination.staged"}
"""Places that only lakes pass; tests/lake/test_lake_crashes.py kills drivers there."""


class Driver:
    """A running pipeline in a process of its own."""

    def __init__(
        self,
        url: str,
        slot: str,
        directory: Path,
        *,
        failpoints: str = "",
        until: str | None = None,
        spark: dict[str, str] | None = None,
        piece_bytes: int = 1024 * 1024,
        capture: dict[str, Any] | None = None,
        capture_failpoints: str = "",
        pipeline: dict[str, Any] | None = None,
        lake: str | None = None,
    ) -> None:
        task: dict[str, Any] = {
            "url": url,
            "slot": slot,
            "directory": str(directory),
            "failpoints": failpoints,
            "until": until,
            "spark": spark,
            "piece_bytes": piece_bytes,
            "capture": capture or {},
            "pipeline": pipeline or {},
            "lake": lake,
        }
        self._errors = (directory / "driver.err").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            env={**os.environ, ENVIRONMENT: capture_failpoints},  # the driver itself does not look at it
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            self._lines.put(line.strip())
        self._lines.put(None)

    def wait_for(self, word: str, seconds: float = PATIENCE) -> str:
        """The next line that begins so."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it does not say {word!r}; it said {self.said}") from None
            assert line is not None, f"it ended without saying {word!r}; it said {self.said}"
            if line.startswith(word):
                return line

    def wait_killed(self, seconds: float = PATIENCE) -> None:
        """Until the failpoint has killed it."""
        assert self.has_ended(within=seconds), f"it was not killed; it said {self.said}"
        code = self.process.returncode
        assert code == -signal.SIGKILL, f"it ended with {code} and was not killed; it said {self.said}"

    def has_ended(self, within: float) -> bool:
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def hear_out(self) -> None:
        """Until all that it said before its end was heard."""
        self._hearing.join(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def capture(self) -> psutil.Process | None:
        """The process that captures beside it."""
        return self._descendant("walrelay.capture.child")

    def jvm(self) -> psutil.Process | None:
        """Spark's."""
        return self._descendant("org.apache.spark.deploy.SparkSubmit")

    def workers(self) -> list[psutil.Process]:
        """The Python processes that Spark has started: those that copy, the one they are forked from, the one that
        looks at the log. Not the shells with which a JVM that is still coming up asks about its machine."""
        try:
            jvm = self.jvm()
            below = [] if jvm is None else jvm.children(recursive=True)
            alive = [one for one in below if one.status() != psutil.STATUS_ZOMBIE]
            return [one for one in alive if any("pyspark" in part for part in one.cmdline())]
        except psutil.Error:
            return []

    def _descendant(self, word: str) -> psutil.Process | None:
        try:
            for one in psutil.Process(self.process.pid).children(recursive=True):
                if any(word in part for part in one.cmdline()):
                    return one
        except psutil.Error:
            pass
        return None

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._errors.close()


def finish(url: str, slot: str, directory: Path, spark: dict[str, str] | None = None) -> None:
    """A last driver brings everything over; then source and destination must be equal."""
    driver = Driver(url, slot, directory, until="caught-up", spark=spark)
    try:
        driver.wait_for("done")
        assert driver.process.wait(PATIENCE) == 0
    finally:
        driver.close()
    assert_replicated(PostgresSource(url, publication="p"), directory / "out.duckdb")


def assert_ledger_is_whole(url: str, directory: Path) -> None:
    """The append-only table without a key holds every number of every client once."""
    question = "SELECT client, count(*), count(DISTINCT n), max(n) FROM ledger GROUP BY client ORDER BY client"
    with psycopg.connect(url) as source, duckdb.connect(str(directory / "out.duckdb"), read_only=True) as copy:
        there = source.execute(question).fetchall()
        here = copy.execute(question.replace("ledger", "public.ledger")).fetchall()
    assert here == there and all(count == distinct == last for _, count, distinct, last in here)


def drop_slot(url: str, slot: str) -> None:
    """Once the server has noticed that its reader is gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        look = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        wait_until(lambda: connection.execute(look, (slot,)).fetchone() == (0,), "the slot is free")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (slot,)
        )
