"""The staging directory belongs to one run, and to nobody once that run is dead."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from walrelay.destinations.staging import staging_area, staging_failure, sweep
from walrelay.errors import DestinationBusyError, DiskFullError, StagingUnwritableError

HOLD = """
import sys, time
from datetime import timedelta
from pathlib import Path
from walrelay.destinations.staging import staging_area
with staging_area(Path(sys.argv[1]), timeout=timedelta(0), notify=print) as area:
    (area / "leftover").write_text("x")
    print("held", flush=True)
    time.sleep(600)
"""


def hold(root: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_it_is_empty_at_the_start_and_gone_at_the_end(tmp_path: Path) -> None:
    root = tmp_path / "staging"
    with staging_area(root, timeout=timedelta(0), notify=print) as area:
        (area / "file").write_text("x")
    assert not root.exists()


def test_a_second_run_is_told_who_holds_it_and_fails_after_its_patience(tmp_path: Path) -> None:
    child = hold(tmp_path / "staging")
    told: list[str] = []
    try:
        with (
            pytest.raises(DestinationBusyError, match=str(child.pid)),
            staging_area(tmp_path / "staging", timeout=timedelta(seconds=0.3), notify=told.append),
        ):
            pass
    finally:
        child.kill()
        child.wait()
    assert len(told) == 1 and str(child.pid) in told[0]


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    child = hold(tmp_path / "staging")
    child.kill()
    child.wait()
    assert (tmp_path / "staging" / "leftover").exists()
    with staging_area(tmp_path / "staging", timeout=timedelta(0), notify=print) as area:
        assert [entry.name for entry in area.iterdir()] == ["lock"]
    assert list(tmp_path.iterdir()) == []


def test_the_sweep_takes_dead_runs_and_leaves_living_ones(tmp_path: Path) -> None:
    dead, alive = hold(tmp_path / "run-dead"), hold(tmp_path / "run-alive")
    dead.kill()
    dead.wait()
    try:
        sweep(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["run-alive"]
    finally:
        alive.kill()
        alive.wait()


def test_failures_to_write_are_named() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(staging_failure(full, "/x/file.parquet"), DiskFullError)
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert isinstance(staging_failure(denied, "/x"), StagingUnwritableError)
