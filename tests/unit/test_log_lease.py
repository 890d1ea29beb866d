"""One process writes a log; who is dead writes no more, and who lost the lease learns it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from walrelay.log import lease as leases
from walrelay.log.failures import LogDamagedError, LogInUseError, LogNotWritableError
from walrelay.log.lease import LIFE, Clock, Lease, acquire
from walrelay.log.manifest import data_path
from walrelay.log.storage import LocalStorage, Storage, open_storage

HOLD = """
import sys, time
from walrelay.log.lease import acquire
from walrelay.log.storage import open_storage
lease = acquire(open_storage(sys.argv[1]), "the other pipeline")
print(lease.epoch, flush=True)
time.sleep(600)
"""

HOLD_AND_FORK = """
import os, sys, time
from walrelay.log.lease import acquire
from walrelay.log.storage import open_storage
lease = acquire(open_storage(sys.argv[1]), "the other pipeline")
if os.fork() == 0:
    print(lease.epoch, flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "log")


def test_a_second_writer_is_refused_and_told_who_writes(storage: Storage) -> None:
    with acquire(storage, "orders"), pytest.raises(LogInUseError, match=rf"orders \(process {os.getpid()} on "):
        acquire(storage, "another")
    acquire(storage, "another").release()


def test_the_kernel_frees_the_lease_of_a_killed_writer(storage: Storage) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, storage.location("")], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "1\n"
        with pytest.raises(LogInUseError, match=rf"the other pipeline \(process {child.pid}"):
            acquire(storage, "us")
    finally:
        child.kill()
        child.wait()
    with acquire(storage, "us") as lease:
        assert lease.epoch == 2


def test_the_epoch_grows_with_each_writer(storage: Storage) -> None:
    epochs = []
    for _ in range(3):
        with acquire(storage, "us") as lease:
            epochs.append(lease.epoch)
    assert epochs == [1, 2, 3]


def test_the_epoch_grows_even_when_the_lease_file_is_lost_or_garbled(storage: Storage) -> None:
    storage.put(data_path(1, 1, 41, 7, 1), b"")
    with acquire(storage, "us") as lease:
        assert lease.epoch == 42
    storage.put("writer.lease", b"\0" * 100)
    with acquire(storage, "us") as lease:
        assert lease.epoch == 42


def test_a_long_name_does_not_break_the_lease(storage: Storage) -> None:
    acquire(storage, "ü" * 5000).release()
    with acquire(storage, "us") as lease:
        assert lease.epoch == 2


def test_a_forked_child_that_outlives_the_writer_does_not_keep_the_lease(storage: Storage) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLD_AND_FORK, storage.location("")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None and writer.stdout is not None
    try:
        assert writer.stdout.readline() == b"1\n"
        with pytest.raises(LogInUseError):
            acquire(storage, "us")
        writer.kill()
        writer.wait()
        acquire(storage, "us").release()
    finally:
        writer.stdin.close()  # the child ends with its input
        writer.stdout.close()


def test_a_program_started_meanwhile_does_not_keep_the_lease(storage: Storage) -> None:
    lease = acquire(storage, "us")
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lease.release()
        acquire(storage, "next").release()
    finally:
        child.kill()
        child.wait()


def test_a_child_that_ends_does_not_free_the_parents_lease(storage: Storage) -> None:
    with acquire(storage, "us") as lease:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        lease.check()
        with pytest.raises(LogInUseError):
            acquire(storage, "another")


def test_a_lease_that_was_released_or_removed_is_lost(storage: Storage) -> None:
    lease = acquire(storage, "us")
    storage.delete("writer.lease")
    with pytest.raises(LogInUseError, match="lost"):
        lease.check()
    other = acquire(storage, "another")
    with pytest.raises(LogInUseError, match="lost"):
        lease.check()
    other.check()
    other.release()
    other.release()
    with pytest.raises(LogInUseError, match="released"):
        other.check()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogNotWritableError):
        acquire(open_storage(tmp_path / "file" / "log"), "us")


# ------------------------------------------------------------------------------------------------- object stores


class Objects(LocalStorage):
    """Files that are to be treated as objects."""

    local = False


class Time:
    """A clock that moves when told to, or when somebody sleeps; what is planned happens during the sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: 1_700_000_000 + self.now, monotonic=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path)


@pytest.fixture
def moving() -> Time:
    return Time()


def held(objects: Objects, moving: Time, owner: str = "us") -> Lease:
    return acquire(objects, owner, clock=moving.clock)


def test_a_live_lease_is_refused_with_the_time_it_has_left(objects: Objects, moving: Time) -> None:
    held(objects, moving, "orders")
    moving.now += 10
    with pytest.raises(LogInUseError, match=r"orders \(process \d+ on .*20 more seconds"):
        held(objects, moving)


def test_an_expired_lease_is_taken_over_and_its_holder_learns_it(objects: Objects, moving: Time) -> None:
    old = held(objects, moving, "old")
    moving.now += LIFE + 1
    new = held(objects, moving, "new")
    assert (old.epoch, new.epoch) == (1, 2)
    with pytest.raises(LogInUseError, match="lost to new"):
        old.check()
    new.check()
    old.release()
    new.check()


def test_it_is_renewed_at_a_third_of_its_life(objects: Objects, moving: Time) -> None:
    lease = held(objects, moving)
    written = objects.read("writer.lease")
    moving.now += LIFE / 3 - 1
    lease.check()
    assert objects.read("writer.lease") == written
    for _ in range(20):
        moving.now += LIFE / 3
        lease.check()
    assert objects.read("writer.lease") != written
    with pytest.raises(LogInUseError):
        held(objects, moving)


def test_one_that_comes_back_too_late_has_lost_it_though_nobody_took_it(objects: Objects, moving: Time) -> None:
    lease = held(objects, moving)
    moving.now += LIFE - 1
    with pytest.raises(LogInUseError, match="run out"):
        lease.check()
    with pytest.raises(LogInUseError, match="lost"):
        lease.check()


def test_a_release_lets_the_next_in_at_once_and_keeps_the_epoch(objects: Objects, moving: Time) -> None:
    held(objects, moving).release()
    assert held(objects, moving).epoch == 2


def test_of_two_at_once_the_later_has_it(objects: Objects, moving: Time) -> None:
    """Both look, both see no lease, both write; each looks again after a while."""
    winner: list[bytes] = []

    def sleep(seconds: float) -> None:
        other = objects.read("writer.lease").replace(b'"token": "', b'"token": "x').replace(b'"us"', b'"them"')
        objects.put("writer.lease", other)
        winner.append(other)

    clock = Clock(wall=moving.clock.wall, monotonic=moving.clock.monotonic, sleep=sleep)
    with pytest.raises(LogInUseError, match="lost to them"):
        acquire(objects, "us", clock=clock)
    assert [objects.read("writer.lease")] == winner


def test_who_was_slow_to_write_waits_until_the_other_must_have_noticed(objects: Objects, moving: Time) -> None:
    class Slow(Objects):
        def put(self, path: str, body: bytes) -> None:
            moving.now += 2
            super().put(path, body)

    quick = held(objects, moving)
    quick.release()
    acquire(Slow(Path(objects.location(""))), "slow", clock=moving.clock)
    assert moving.slept == [leases.SETTLE, leases.SETTLE]
    # The time of the look counts, too.

    class SlowLook(Objects):
        def list(self, directory: str) -> list[str]:
            moving.now += 2
            return super().list(directory)

    moving.now += LIFE + 1
    acquire(SlowLook(Path(objects.location(""))), "slow", clock=moving.clock)
    assert moving.slept[-1] > LIFE / 3


def test_a_garbled_lease_object_is_not_overwritten(objects: Objects, moving: Time) -> None:
    objects.put("writer.lease", b"{}")
    with pytest.raises(LogDamagedError, match=r"writer\.lease"):
        held(objects, moving)


def test_the_clock_is_the_real_one_by_default() -> None:
    assert abs(Clock().wall() - time.time()) < 60
