"""The demo's pipeline: `walrelay replicate` as a process of its own, which can be watched, killed and started again."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from walrelay.cli.progress import stderr_console
from walrelay.errors import ConfigError, StateMissingError, WalrelayError

if TYPE_CHECKING:
    from walrelay.control.status import StatusReport

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 20.0
"""How long processes may take to end by themselves."""
HOPELESS_SECONDS = 30.0
"""A table that failed may come back; not after this."""
_PR_SET_PDEATHSIG = 1
_FOLLOWER = """
from walrelay.cli.demo_pipeline import die_with
die_with({parent})
from walrelay.cli import main
main()
"""


class PipelineEndedError(WalrelayError):
    """The demo's pipeline ended, or cannot go on; it has said why."""

    code = "demo.pipeline_ended"


class PipelineProcess:
    """Everything that it keeps is in `directory`, besides the DuckDB file. `close` ends whatever is left of it."""

    def __init__(
        self, url: str, publication: str, output: Path, directory: Path, spark_settings: Mapping[str, str]
    ) -> None:
        self._publication = publication
        self._state = directory / "state"
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._child: subprocess.Popen[bytes] | None = None
        slashes = "////" if output.is_absolute() else "///"
        self.arguments = [
            "replicate", url, f"duckdb:{slashes}{str(output).lstrip('/')}", "--publication", publication,
            "--state", str(self._state),
        ]  # fmt: skip
        for key, value in spark_settings.items():
            self.arguments += ["--spark", f"{key}={value}"]

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """In a session of its own: Ctrl-C is for the demo, which then ends it."""
        places = {"TMPDIR": str(self._temporary), "SPARK_LOCAL_DIRS": str(self._temporary)}
        self._child = subprocess.Popen(
            # It ties itself to us: code run here between fork and exec could swallow the Ctrl-C that comes meanwhile.
            [sys.executable, "-c", _FOLLOWER.format(parent=os.getpid()), *self.arguments],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **places},
            start_new_session=True,
        )

    def status(self) -> StatusReport | None:
        """Where it stands, as `walrelay status` finds it; None when it has not yet begun."""
        from walrelay.control.status import pipeline_status
        from walrelay.control.stores import Place

        # It may be about to make its files.
        with suppress(StateMissingError, ConfigError, sqlite3.OperationalError):
            return pipeline_status(Place(self._state, self._publication))
        return None

    def wait_until(self, reached: Callable[[StatusReport], bool]) -> StatusReport:
        """The first status that will do."""
        hopeless = time.monotonic() + HOPELESS_SECONDS
        while True:
            status = self.status()
            if status is not None and reached(status):
                return status
            if status is None or all(table.phase != "errored" for table in status.tables):
                hopeless = time.monotonic() + HOPELESS_SECONDS
            elif time.monotonic() > hopeless:
                failed = next(table for table in status.tables if table.phase == "errored")
                raise PipelineEndedError(f"{failed.name} cannot be replicated: {failed.reason}", hint=failed.solution)
            self.rest(POLL_SECONDS)

    def rest(self, seconds: float) -> None:
        """Let it work so long; raises when it ends meanwhile."""
        assert self._child is not None
        with suppress(subprocess.TimeoutExpired):
            code = self._child.wait(seconds)
            raise PipelineEndedError(f"the pipeline ended with code {code}", hint="It has said why, above.")

    def kill(self) -> int:
        """SIGKILL it, and return how many processes that it had started ended by themselves."""
        others = _descendants(self.pid)
        self._end(signal.SIGKILL)
        return len(others) - len(_still_there(others))

    def stop(self) -> int:
        """End it as Ctrl-C would; its exit code."""
        return self._end(signal.SIGTERM)

    def close(self) -> None:
        if self._child is not None and self._child.poll() is None:
            others = _descendants(self.pid)
            self._end(signal.SIGTERM)
            for process in _still_there(others):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def _end(self, ending: signal.Signals) -> int:
        assert self._child is not None
        self._child.send_signal(ending)
        try:
            code = self._child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        if code < 0:
            # Its board is left standing, and the cursor hidden.
            console = stderr_console()
            if console.is_interactive:
                console.show_cursor(True)
                console.print()
        return code


def die_with(parent: int) -> None:
    """In the child, before it becomes the command: ask the kernel for SIGTERM when the demo ends, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != parent:
        os._exit(1)


def _descendants(process: int) -> list[int]:
    """Its children and theirs; known on Linux only."""
    found: list[int] = []
    for threads in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, threads.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _still_there(processes: list[int]) -> list[int]:
    """Those that have not ended by themselves within our patience."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (alive := [process for process in processes if _is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return alive


def _is_alive(process: int) -> bool:
    with suppress(OSError):
        # After the name, which may hold anything. A zombie only waits for its parent.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
