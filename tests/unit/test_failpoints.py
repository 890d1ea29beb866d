"""A place where a process stops until somebody lets it go on."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.faults.capture_kit import wait_until
from walrelay.failpoints import NAMES, arm

SOURCE = Path(__file__).parents[2] / "src" / "walrelay"
CHILD = """
import sys
from walrelay.failpoints import arm, hit
arm(f"ack.before=stop:{sys.argv[1]},ack.after=stop:{sys.argv[1]}")
for number in range(3):
    hit("ack.before")
    print("before", number, flush=True)
    hit("ack.after")
    print("after", number, flush=True)
    sys.stdin.readline()
"""


def test_a_process_stops_at_the_place_that_is_asked_for_and_once(tmp_path: Path) -> None:
    order = tmp_path / "order"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(order)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert [child.stdout.readline() for _ in range(2)] == ["before 0\n", "after 0\n"]
        order.write_text("ack.after")
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "before 1\n"
        wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "it stops")
        assert not order.exists()
        child.send_signal(signal.SIGCONT)
        rest, _ = child.communicate("\n\n", timeout=30)
        assert rest.splitlines() == ["after 1", "before 2", "after 2"]
    finally:
        child.kill()
        child.wait()


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no such failpoint: ack\\.sometimes"):
        arm("ack.sometimes=kill")


def test_every_place_that_the_code_passes_can_be_armed_and_no_other() -> None:
    texts = [file.read_text() for file in SOURCE.rglob("*.py")]
    passed = {name for text in texts for name in re.findall(r"\bhit\(\"([^\"]+)\"\)", text)}
    assert passed == NAMES
