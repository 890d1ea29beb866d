"""A process from which captures are forked: `python -m tests.spark.capture_forker`, with a socket as standard input.

A capture that is started takes two seconds of a processor to import everything; here that is done once. Each request
brings what a capture is to have: its standard input, output and error, a pipe to report to, environment and directory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

import tests.faults.capture_preload  # noqa: F401 - what each of them finds loaded
from walrelay.capture import child as capture_child

LENGTH_BYTES = 8
STREAMS = 3


def serve(requests: socket.socket) -> int:
    """Until whoever asks is gone. Returns in each forked capture, too, with its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who report
    while True:
        head, given, _, _ = socket.recv_fds(requests, LENGTH_BYTES, STREAMS + 1)
        if not head:
            return 0
        request = _read(requests, int.from_bytes(head, "big"))
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            capture = os.fork()
            if capture:
                _report(capture, given)
            return _capture(request, given)
        for one in given:
            os.close(one)


def _read(requests: socket.socket, size: int) -> dict[str, Any]:
    with requests.makefile("rb", buffering=0) as stream:
        body = b""
        while len(body) < size:
            body += stream.read(size - len(body)) or b""
    found: dict[str, Any] = json.loads(body)
    return found


def _report(capture: int, given: list[int]) -> None:
    """Its process id at once, and its exit code when it has ended."""
    report = given.pop()
    for one in given:
        os.close(one)
    os.write(report, f"{capture}\n".encode())
    _, status = os.waitpid(capture, 0)
    os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _capture(request: dict[str, Any], given: list[int]) -> int:
    """The child's real main, with all that the supervisor would have given to a new process."""
    os.setsid()
    os.close(given.pop())
    for number, one in enumerate(given):
        os.dup2(one, number)
        os.close(one)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return capture_child.main()


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=os.dup(0))))
