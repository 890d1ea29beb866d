"""Captures of pipelines under test, forked from a process that has imported everything (`capture_forker.py`).

That a pipeline starts `python -m walrelay.capture.child` is what tests/faults and tests/e2e see, in whole processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from tests.spark.capture_forker import LENGTH_BYTES

ROOT = Path(__file__).parents[2]


class CaptureForks:
    """Stands for the module `subprocess` in the supervisor of captures; started when it is first needed."""

    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._forker: subprocess.Popen[bytes] | None = None

    def Popen(self, command: list[str], **given: object) -> ForkedCapture:  # noqa: N802 - subprocess calls it so
        wanted = {"stdin": self.PIPE, "stdout": self.PIPE, "text": True, "start_new_session": True}
        assert command[1:] == ["-m", "walrelay.capture.child"] and given == wanted, (command, given)
        body = json.dumps({"environment": dict(os.environ), "directory": str(Path.cwd())}).encode()
        their_input, our_input = os.pipe()
        our_output, their_output = os.pipe()
        hearing, report = os.pipe()
        theirs = [their_input, their_output, 2, report]
        with self._lock:
            requests = self._started()
            socket.send_fds(requests, [len(body).to_bytes(LENGTH_BYTES, "big")], theirs)
            requests.sendall(body)
        for one in (their_input, their_output, report):
            os.close(one)
        return ForkedCapture(os.fdopen(our_input, "w"), os.fdopen(our_output), os.fdopen(hearing))

    def _started(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair()
            path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
            with theirs:
                self._forker = subprocess.Popen(
                    [sys.executable, "-m", "tests.spark.capture_forker"],
                    stdin=theirs.fileno(),
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
        return self._requests

    def close(self) -> None:
        if self._requests is not None and self._forker is not None:
            self._requests.close()
            self._forker.wait(60)


class ForkedCapture:
    """What the supervisor needs of a `Popen`."""

    def __init__(self, stdin: TextIO, stdout: TextIO, report: TextIO) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self.pid = int(report.readline())
        self._ended = threading.Event()
        threading.Thread(target=self._hear, args=(report,), name="end of a capture", daemon=True).start()

    def _hear(self, report: TextIO) -> None:
        with report:
            self.returncode = int(report.readline() or 255)
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("capture", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
