"""Capture under its supervisor: killed it comes back, asked to end it ends cleanly, orphaned it ends by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.faults.capture_kit import (
    SMALL,
    RestingWorkload,
    Watcher,
    assert_log_is_whole,
    create_tables,
    streaming_early,
    wait_until,
)
from walrelay.capture.capture import Capture
from walrelay.capture.process import CaptureProcess
from walrelay.config.settings import capture_settings
from walrelay.errors import SlotMissingError
from walrelay.log.lease import acquire
from walrelay.log.reader import LogReader
from walrelay.log.storage import open_storage
from walrelay.model.lsn import Lsn

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

PARENT = """
import json, sys, time
from walrelay.config.settings import capture_settings
from walrelay.postgres.source import PostgresSource
from walrelay.capture.process import CaptureProcess

url, slot, log, settings = json.loads(sys.argv[1])
source = PostgresSource(url, publication="p")
process = CaptureProcess(source, slot=slot, log=log, settings=capture_settings(**settings))
process.start()
while process.pid is None:
    time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"supervised_{database.rpartition('_')[2]}"
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        look = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        wait_until(lambda: connection.execute(look, (name,)).fetchone() == (0,), "the slot is free")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )


@contextmanager
def supervised(url: str, slot: str, log: Path, said: list[str], **settings: Any) -> Iterator[CaptureProcess]:
    """Started; stopped at the end, if it still runs."""
    process = CaptureProcess(
        streaming_early(url),
        slot=slot,
        log=log,
        settings=capture_settings(**{**SMALL, **settings}),
        notify=said.append,
    )
    process.start()
    try:
        yield process
    finally:
        if process.running:
            process.stop()


def capture_all(url: str, slot: str, log: Path) -> None:
    Capture(streaming_early(url), slot=slot, log=log, settings=capture_settings(**SMALL)).run("caught-up")


def confirmed(url: str, slot: str) -> Lsn:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (slot,)
        ).fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def test_a_killed_process_comes_back_and_goes_on(database: str, slot: str, tmp_path: Path) -> None:
    log, said = tmp_path / "log", list[str]()
    bursts = RestingWorkload(create_tables(database, seed=31), burst=10, rest=0.3)
    capture_all(database, slot, log)
    reader = LogReader(log)
    pids: set[int] = set()
    with (
        supervised(database, slot, log, said) as process,
        Watcher(database, slot, log) as watcher,
        bursts.running(),
    ):
        for _ in range(2):
            before = reader.end()
            wait_until(lambda: reader.end() > before, "it captures")  # noqa: B023 - called here
            pid = process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: process.pid not in (None, pid), "another process is there")  # noqa: B023
            pids.add(pid)
        before = reader.end()
        wait_until(lambda: reader.end() > before, "it captures")
        # Those that were killed may not have come to that.
        wait_until(lambda: watcher.moves > 2, "it confirms what it has captured")
        assert len(pids) == 2 and process.running
    assert not process.running
    assert len(said) == 2 and all("killed by signal 9; it starts again" in one for one in said)
    for _ in range(2):
        capture_all(database, slot, log)
    assert_log_is_whole(log, bursts)


@pytest.mark.parametrize("how", ["stop", "SIGTERM", "SIGINT"])
def test_asked_to_end_it_publishes_what_came_and_confirms_it(
    database: str, slot: str, tmp_path: Path, how: str
) -> None:
    log = tmp_path / "log"
    bursts = RestingWorkload(create_tables(database, seed=32, large_rows=2_000), burst=20)
    capture_all(database, slot, log)
    reader = LogReader(log)
    with supervised(database, slot, log, []) as process, bursts.running():
        before = reader.end()
        wait_until(lambda: reader.end() > before and bursts.committed > 100, "it captures")
        child = psutil.Process(process.pid)
        if how == "stop":
            process.stop()
        else:
            child.send_signal(signal.Signals[how])
            assert process.wait(30), "it has ended, and is not started again"
        assert not child.is_running() and process.pid is None
        assert confirmed(database, slot) == reader.head() > before
    status = process.status()
    assert status is not None and status.state == "stopped" and status.confirmed_lsn == str(reader.head())
    capture_all(database, slot, log)
    assert_log_is_whole(log, bursts)


def test_stopped_while_idle_nothing_received_is_held_back(database: str, slot: str, tmp_path: Path) -> None:
    """What was committed and received before the end is in the log after it, however young."""
    log = tmp_path / "log"
    create_tables(database, seed=33)
    with supervised(database, slot, log, [], segment_age=30, segment_age_busy=30) as process:
        wait_until(lambda: (status := process.status()) is not None and status.state == "streaming", "it streams")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("INSERT INTO marks VALUES (1, 0, now(), '')")
        wait_until(lambda: (status := process.status()) is not None and status.memory_bytes > 0, "the change has come")
        assert list(LogReader(log).changes()) == []
    assert [change.row["id"] for change in LogReader(log).changes() if change.row] == [1]
    assert confirmed(database, slot) == LogReader(log).head()


def test_its_parent_killed_it_ends_and_frees_the_log(database: str, slot: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    create_tables(database, seed=34)
    task = json.dumps([streaming_early(database).url, slot, str(log), SMALL])
    parent = subprocess.Popen([sys.executable, "-c", PARENT, task], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        try:
            wait_until((log / "log.json").exists, "it captures")
            parent.kill()
            parent.wait()
            wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it ends", 10)
        finally:
            if child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
                child.kill()
    acquire(open_storage(log), "the next one").release()
    assert confirmed(database, slot) == LogReader(log).head()


def test_what_time_cannot_heal_reaches_who_started_it(database: str, slot: str, tmp_path: Path) -> None:
    log, said = tmp_path / "log", list[str]()
    create_tables(database, seed=35)
    capture_all(database, slot, log)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    with supervised(database, slot, log, said) as process, pytest.raises(SlotMissingError) as caught:
        process.wait(30)
    assert "--begin-anew" in caught.value.hint
    assert not process.running and said == []
