"""`walrelay replicate`, told to end: its whole process group is, as by a terminal, `timeout` or a service manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.faults.capture_kit import wait_until
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.proxy import FaultProxy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]

PATIENCE = 120.0
JVM = "org.apache.spark.deploy.SparkSubmit"
LAUNCHED = "pyspark-shell"
"""The last word of the JVM's command, also while a script only prepares it."""


class Command:
    """A pipeline that runs on, as a user starts it; its temporary files are below `directory`."""

    def __init__(self, url: str, directory: Path, *arguments: str) -> None:
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._words = directory / "said"
        command = ["replicate", url, "duckdb:///out.duckdb", "--publication", "p", "--state", "state", *arguments]
        with self._words.open("wb") as words:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).parent / "walrelay"), *command],
                stdout=words,
                stderr=words,
                cwd=directory,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                start_new_session=True,
            )
        self._seen: set[psutil.Process] = set()

    @property
    def said(self) -> str:
        return self._words.read_text()

    def helper(self, word: str) -> psutil.Process | None:
        """One of its processes that has this word on its command line."""
        found = None
        try:
            for one in psutil.Process(self.process.pid).children(recursive=True):
                self._seen.add(one)
                if any(word in part for part in one.cmdline()):
                    found = one
        except psutil.Error:
            pass
        return found

    def wait_for_helper(self, word: str) -> psutil.Process:
        wait_until(lambda: self.helper(word) is not None, f"a process {word}", PATIENCE)
        found = self.helper(word)
        assert found is not None
        return found

    def wait_for_word(self, word: str) -> None:
        wait_until(lambda: word in self.said or self.process.poll() is not None, f"it says {word!r}", PATIENCE)
        assert word in self.said, self.said

    def tell_all(self, number: signal.Signals) -> int:
        """A signal to its process group, and its exit code."""
        self.helper(JVM)
        os.killpg(self.process.pid, number)
        return self.process.wait(PATIENCE)

    def leftovers(self) -> list[psutil.Process]:
        """Processes of its that still run after a while."""
        return psutil.wait_procs(list(self._seen), 30)[1]

    def close(self) -> None:
        if self.process.poll() is None:
            self.helper(JVM)
            self.process.kill()
            self.process.wait()
        for one in self.leftovers():
            one.kill()


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 20000) n")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        yield database
        look = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_p_%' AND active"
        wait_until(lambda: connection.execute(look).fetchone() == (0,), "the slot is free")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_p_%'"
        )


def assert_in_order(command: Command, code: int) -> None:
    said = command.said
    assert code == 0, said
    assert "stopping" in said and "error" not in said and "Traceback" not in said and "py4j" not in said.lower(), said
    assert command.leftovers() == []


def test_the_whole_group_is_told_while_spark_starts_and_while_all_runs(shop: str, tmp_path: Path) -> None:
    starting = Command(shop, tmp_path)
    try:
        starting.wait_for_helper(LAUNCHED)
        assert_in_order(starting, starting.tell_all(signal.SIGTERM))
    finally:
        starting.close()
    running = Command(shop, tmp_path)
    try:
        running.wait_for_word("public.orders: 20,000 rows")
        running.wait_for_helper("walrelay.spark.daemon")
        assert_in_order(running, running.tell_all(signal.SIGINT))
        assert list(running.temporary.glob("walrelay-*/*")) == []
        assert "no end in" not in running.said
    finally:
        running.close()


def test_a_copy_that_waits_for_a_lock_ends_in_order(shop: str, tmp_path: Path) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted"
    with psycopg.connect(shop) as holder, psycopg.connect(shop, autocommit=True) as observer:
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        command = Command(shop, tmp_path)
        try:
            wait_until(lambda: observer.execute(waiting).fetchone() != (0,), "the copy waits", PATIENCE)
            assert_in_order(command, command.tell_all(signal.SIGTERM))
            assert "no end in" not in command.said
        finally:
            command.close()


def test_a_source_that_no_longer_answers_holds_up_no_end(
    shop: str, tmp_path: Path, postgres18: EmbeddedPostgres
) -> None:
    with FaultProxy("127.0.0.1", postgres18.port) as proxy:
        command = Command(proxy.url(shop), tmp_path)
        try:
            wait_until(lambda: proxy.bytes_to_client > 2_000_000, "the copy has begun", PATIENCE)
            proxy.pause()
            assert_in_order(command, command.tell_all(signal.SIGTERM))
        finally:
            command.close()
            proxy.drop()


def test_spark_dies_with_a_driver_that_is_killed_and_the_next_start_sweeps(shop: str, tmp_path: Path) -> None:
    alone = Command(shop, tmp_path)
    try:
        alone.wait_for_word("public.orders: 20,000 rows")
        jvm = alone.wait_for_helper(JVM)
        assert os.getsid(jvm.pid) != os.getsid(alone.process.pid)
        alone.process.kill()
        alone.process.wait()
        assert alone.leftovers() == []
    finally:
        alone.close()
    killed = Command(shop, tmp_path)
    try:
        wait_until(lambda: any(killed.temporary.rglob("blockmgr-*")), "Spark writes", PATIENCE)
        jvm = killed.wait_for_helper(JVM)
        jvm.kill()
        killed.process.kill()
        killed.process.wait()
        left = list(killed.temporary.rglob("blockmgr-*"))
        assert left
    finally:
        killed.close()
    theirs = killed.temporary / "spark-of-a-user"
    theirs.mkdir()
    last = Command(shop, tmp_path, "--until", "caught-up")
    try:
        assert last.process.wait(PATIENCE) == 0, last.said
        assert list(last.temporary.rglob("blockmgr-*")) == [] and theirs.exists()
    finally:
        last.close()
