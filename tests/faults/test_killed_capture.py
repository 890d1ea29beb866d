"""Capture that is killed at any moment: no commit is lost or doubled, and nothing is confirmed that is not held."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
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
    help_to_pass,
    large_transaction,
    streaming_early,
    wait_until,
)
from tests.repetitions import some
from walrelay.failpoints import NAMES
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

KILLS = some(10, 50)
PASSES = some(((1,), (3,)), ((1, 3), (1, 3)))
"""At which pass places are killed, by turns: each at both of them, or one at the first and the next at the third."""
LAGGING_KILLS = some(6, 12)
ONCE = ("slot.before_create", "slot.after_create")
"""A log passes these once in its life."""
OFTEN = tuple(sorted(name for name in NAMES if name.startswith(("spill.", "segment.", "head.", "ack."))))
COMPACTION = tuple(sorted(name for name in NAMES if name.startswith("compaction.")))


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    """A name, unlike those of other tests on the same server; the slot is dropped afterwards."""
    name = f"killed_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


def drop_slot(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )
        look = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(lambda: connection.execute(look, (name,)).fetchone() != (True,), "the slot is free")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )


def finish(task: CaptureTask, bursts: RestingWorkload) -> None:
    """Capture the rest, open and close the log cleanly once more, and check all of it."""
    assert task.run(until="caught-up") == 0
    assert task.run(until="caught-up") == 0
    assert task.errors() == []
    assert_log_is_whole(task.log, bursts)


def test_killed_at_random_moments(database: str, slot: str, tmp_path: Path) -> None:
    task = CaptureTask(streaming_early(database), slot, tmp_path / "log")
    bursts = RestingWorkload(create_tables(database, seed=11), burst=15, rest=0.3, sample_every=15)
    chance = random.Random(50)
    assert task.run(until="caught-up") == 0
    reader = LogReader(task.log)
    with Watcher(database, slot, task.log), bursts.running():
        for number in range(KILLS):
            before = reader.head()
            process = task.start()
            if number % 5 == 2:
                large_transaction(database)
            if number % 2:
                # Half of them while it starts, half while it works.
                wait_until(lambda: reader.head() > before, "it captures something")  # noqa: B023 - called here
            time.sleep(chance.uniform(0.02, 0.4))
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL, task.said()
    finish(task, bursts)


def test_killed_at_every_step(database: str, slot: str, tmp_path: Path) -> None:
    """At the first or the third pass of every failpoint of capture, one after another, on the same log."""
    task = CaptureTask(streaming_early(database), slot, tmp_path / "log", {**SMALL, "compact": False})
    bursts = RestingWorkload(create_tables(database, seed=12), burst=25)
    for name in ONCE:  # what is committed before the slot is there is not captured, so the workload begins later
        assert task.run(failpoints=f"{name}=kill") == -signal.SIGKILL, name
    with Watcher(database, slot, task.log), bursts.running():
        for number, name in enumerate(OFTEN):
            for passed in PASSES[number % 2]:
                with help_to_pass(name, database, bursts):
                    code = task.run(failpoints=f"{name}=kill:{passed}")
                assert code == -signal.SIGKILL, f"{name} was not passed {passed} times: {task.said()}"
    finish(task, bursts)


def test_killed_while_merging_segments(database: str, slot: str, tmp_path: Path) -> None:
    without = CaptureTask(streaming_early(database), slot, tmp_path / "log", {**SMALL, "compact": False})
    task = CaptureTask(streaming_early(database), slot, tmp_path / "log")
    bursts = RestingWorkload(create_tables(database, seed=13), burst=10, rest=0.05)
    assert without.run(until="caught-up") == 0  # what is committed before the slot is there is not captured
    reader = LogReader(task.log)
    with Watcher(database, slot, task.log), bursts.running():
        for number, name in enumerate(COMPACTION):
            for passed in PASSES[number % 2]:
                process = without.start()
                wait_until(lambda: len(reader.entries()) > 60, "enough segments to merge three times")
                process.kill()
                process.join()
                process = task.start(failpoints=f"{name}=kill:{passed}")
                process.join(300)
                assert process.exitcode == -signal.SIGKILL, f"{name} was not passed {passed} times: {task.said()}"
    finish(task, bursts)


def test_killed_while_the_slot_waits_for_a_reader_that_lags(database: str, slot: str, tmp_path: Path) -> None:
    """With ack=destination the slot stays where the reader is, whatever happens to capture."""
    settings = {**SMALL, "ack": "destination", "compact": False}
    task = CaptureTask(streaming_early(database), slot, tmp_path / "log", settings)
    bursts = RestingWorkload(create_tables(database, seed=14), burst=20)
    chance = random.Random(14)
    assert task.run(until="caught-up") == 0
    reader = LogReader(task.log)
    positions = ReaderPositions(reader.storage)
    with Watcher(database, slot, task.log, reader="lagging") as watcher, bursts.running():
        for number in range(LAGGING_KILLS):
            head, moves = reader.head(), watcher.moves
            process = task.start()
            wait_until(lambda head=head: len(reader.entries(head)) > 2, "capture works")
            entries = reader.entries()
            is_near = number == LAGGING_KILLS - 3 or len(entries) <= 5
            positions.record("lagging", entries[-1 if is_near else -5].end_lsn)
            if number % 2:
                wait_until(lambda moves=moves: watcher.moves > moves, "the slot follows its reader")
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL, task.said()
    finish(task, bursts)


def test_killed_while_the_slot_is_being_made(database: str, slot: str, tmp_path: Path) -> None:
    """A running transaction holds the creation up; the server goes on with it after its client's death."""
    task = CaptureTask(streaming_early(database), slot, tmp_path / "log")
    bursts = RestingWorkload(create_tables(database, seed=15, large_rows=0), burst=10)
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as connection:
        other.execute("INSERT INTO noise VALUES (1)")
        first = task.start()
        look = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(lambda: connection.execute(look, (slot,)).fetchone() == (True,), "the slot is being made")
        first.kill()
        first.join()
        second = task.start()
        wait_until(lambda: any("in use by" in one.get("notice", "") for one in task.said()), "it waits for its turn")
        other.commit()
        with bursts.running():
            wait_until(lambda: bursts.committed > 100, "the workload runs")
            wait_until(lambda: LogReader(task.log).storage.list("manifest") != [], "changes are captured")
        assert second.is_alive()
        second.kill()
        second.join()
    finish(task, bursts)
