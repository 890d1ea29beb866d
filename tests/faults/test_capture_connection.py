"""Capture over a connection that breaks in every way: it comes back by itself, and the log is whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.faults.capture_kit import (
    SMALL,
    CaptureTask,
    RestingWorkload,
    Watcher,
    assert_log_is_whole,
    create_tables,
    large_transaction,
    streaming_early,
    wait_until,
)
from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.errors import WalrelayError
from walrelay.log.reader import LogReader
from walrelay.testing.failpoints import armed
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.proxy import FaultProxy

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SLOT = "shaky"
SENDER_TIMEOUT = 2.0


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """One of our own, durable, and soon out of patience with a client that does not answer."""
    settings = {"wal_sender_timeout": f"{SENDER_TIMEOUT:.0f}s", "shared_buffers": "32MB"}
    with EmbeddedPostgres(durable=True, settings=settings) as running:
        yield running


class Running:
    """A capture in a thread of this process."""

    def __init__(self, task: CaptureTask) -> None:
        self.capture = Capture(
            task.source, slot=task.slot, log=task.log, settings=capture_settings(**task.settings), notify=self._heard
        )
        self.said: list[str] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)

    def _heard(self, message: str) -> None:
        self.said.append(message)

    def _run(self) -> None:
        try:
            self.capture.run()
        except BaseException as error:
            self.error = error

    @property
    def reconnects(self) -> int:
        return self.capture.status().reconnects

    def wait_for_more(self, reader: LogReader, seconds: float = 180) -> None:
        """It goes on: something that is committed from now on arrives."""
        before = reader.end()
        wait_until(lambda: self.error is not None or reader.end() > before, f"more arrives {self.said}", seconds)
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.capture.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "capture does not end"
        if self.error is not None:
            raise self.error

    @contextmanager
    def running(self) -> Iterator[Running]:
        self._thread.start()
        try:
            yield self
        finally:
            self.capture.stop()
            self._thread.join(60)
        if self.error is not None:
            raise self.error


def finish(task: CaptureTask, bursts: RestingWorkload) -> None:
    for _ in range(2):
        Capture(task.source, slot=task.slot, log=task.log, settings=capture_settings(**task.settings)).run("caught-up")
    assert_log_is_whole(task.log, bursts)


def test_the_server_crashes_several_times_under_load(server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = server.create_database("crashing")
    task = CaptureTask(streaming_early(url), SLOT, tmp_path / "log")
    bursts = RestingWorkload(create_tables(url, seed=21), burst=25)
    capture = Running(task)
    Capture(task.source, slot=SLOT, log=task.log, settings=capture_settings(**SMALL)).run("caught-up")
    reader = LogReader(task.log)
    with Watcher(url, SLOT, task.log), bursts.running(), capture.running():
        for _ in range(5):
            capture.wait_for_more(reader)
            server.stop("immediate")
            time.sleep(0.2)
            server.start()
        capture.wait_for_more(reader)
    assert capture.reconnects >= 5
    finish(task, bursts)


def test_the_connection_is_cut_held_up_and_refused(server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = server.create_database("shaky")
    with FaultProxy("127.0.0.1", server.port) as proxy:
        task = CaptureTask(streaming_early(proxy.url(url)), SLOT, tmp_path / "log")
        direct = CaptureTask(streaming_early(url), SLOT, tmp_path / "log")
        bursts = RestingWorkload(create_tables(url, seed=22), burst=25)
        Capture(direct.source, slot=SLOT, log=task.log, settings=capture_settings(**SMALL)).run("caught-up")
        reader = LogReader(task.log)
        capture = Running(task)
        with Watcher(url, SLOT, task.log), bursts.running(), capture.running():
            capture.wait_for_more(reader)
            for fault in (drop, cut_in_a_message, cut_in_a_large_transaction, refuse, hold_up, hold_up_one_way):
                before = capture.reconnects
                fault(proxy, url)
                wait_until(lambda: capture.reconnects > before, f"{fault.__name__} is noticed")  # noqa: B023
                capture.wait_for_more(reader)
    finish(direct, bursts)


def test_a_stream_that_stalls_is_begun_anew(database: str, tmp_path: Path) -> None:
    """Neither side hears of it: the server waits for a minute, and its keepalives are lost too."""
    bursts = RestingWorkload(create_tables(database, seed=24), burst=25)
    port = int(database.rpartition(":")[2].partition("/")[0])
    slot = f"stall_{database.rpartition('_')[2]}"
    with FaultProxy("127.0.0.1", port) as proxy:
        direct = CaptureTask(streaming_early(database), slot, tmp_path / "log")
        Capture(direct.source, slot=slot, log=direct.log, settings=capture_settings(**SMALL)).run("caught-up")
        reader = LogReader(direct.log)
        task = CaptureTask(streaming_early(proxy.url(database)), slot, direct.log, {**SMALL, "stall_timeout": 1})
        capture = Running(task)
        with bursts.running(), capture.running():
            capture.wait_for_more(reader)
            proxy.stall()
            wait_until(lambda: any("stalled" in one for one in capture.said), "the stall is noticed")
            capture.wait_for_more(reader)
        finish(direct, bursts)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def drop(proxy: FaultProxy, _url: str) -> None:
    proxy.drop()


def cut_in_a_message(proxy: FaultProxy, _url: str) -> None:
    proxy.truncate_after(1_237)


def cut_in_a_large_transaction(proxy: FaultProxy, url: str) -> None:
    proxy.truncate_after(700_001)
    large_transaction(url)


def refuse(proxy: FaultProxy, _url: str) -> None:
    proxy.refuse(True)
    proxy.drop()
    time.sleep(0.7)
    proxy.refuse(False)


def hold_up(proxy: FaultProxy, _url: str) -> None:
    """Longer than the server waits for a sign of life."""
    proxy.pause()
    time.sleep(1.5 * SENDER_TIMEOUT)
    proxy.resume()


def hold_up_one_way(proxy: FaultProxy, _url: str) -> None:
    proxy.pause(to_client=False)
    time.sleep(1.5 * SENDER_TIMEOUT)
    proxy.resume()


def test_the_writer_fails_while_the_receiver_waits_for_it(database: str, tmp_path: Path) -> None:
    """The queue is full, the connection is cut, and the writer, which nobody may leave behind, fails."""
    workload = create_tables(database, seed=23, large_rows=0)
    port = int(database.rpartition(":")[2].partition("/")[0])
    slot = f"full_{database.rpartition('_')[2]}"
    with FaultProxy("127.0.0.1", port) as proxy:
        task = CaptureTask(streaming_early(proxy.url(database)), slot, tmp_path / "log")
        bursts = RestingWorkload(workload)
        Capture(task.source, slot=slot, log=task.log, settings=capture_settings(**SMALL)).run("caught-up")
        capture = Running(task)
        with armed("segment.before_publish=sleep:1.5,segment.files_durable=fail:1"), capture.running():
            stream = lambda: capture.capture._stream  # noqa: E731
            wait_until(lambda: stream() is not None, "it streams")
            with psycopg.connect(database, autocommit=True) as connection:
                while stream()._queue.qsize() < stream()._queue.maxsize:  # type: ignore[union-attr]
                    connection.execute("INSERT INTO marks VALUES (nextval('workload_marks'), 0, now(), '')")
            proxy.drop()
            wait_until(lambda: capture.reconnects > 0, "it comes back")
            wait_until(lambda: any("failpoint" in one or "lost" in one for one in capture.said), "it says why")
        with bursts.running():
            wait_until(lambda: bursts.committed > 100, "the workload runs")
        finish(task, bursts)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_a_failure_that_time_cannot_heal_ends_it(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Dropping the database's slot under it, after a crash: it does not try for ever."""
    url = server.create_database("gone")
    create_tables(url, seed=24)
    task = CaptureTask(streaming_early(url), SLOT, tmp_path / "log")
    capture = Running(task)
    with pytest.raises(WalrelayError) as caught, capture.running():
        wait_until((task.log / "log.json").exists, "the log is there")
        server.stop("immediate")
        server.start()
        with psycopg.connect(server.url, autocommit=True) as connection:
            drop_now = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
            end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
            while connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() != (0,):
                connection.execute(end)
                connection.execute(drop_now)
        wait_until(lambda: capture.error is not None, "it ends")
    assert caught.value.code == "source.slot_missing"
