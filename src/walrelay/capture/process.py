"""Starts capture in its own process, and starts it again when it dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from walrelay.backoff import delay_of
from walrelay.capture.capture import Until
from walrelay.capture.child import NAMED_FAILURE
from walrelay.config.settings import CaptureSettings
from walrelay.errors import CaptureDiedError, WalrelayError, from_text
from walrelay.log.identity import read_lineage
from walrelay.log.status import CaptureStatus, read_status
from walrelay.log.storage import open_storage
from walrelay.model.notice import Notice
from walrelay.postgres.source import PostgresSource

FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=0.5), timedelta(seconds=60)
STEADY_SECONDS = 30.0
"""A process that lived this long was well; the next crash waits only shortly again."""
PATIENCE_SECONDS = 6.0
"""How long a clean end may take before the process is killed; nothing is lost then either."""
FIRST_PATIENCE_SECONDS = 1.0
"""… before there is a log: all it can be at is to wait for its slot, which takes as long as others' transactions."""


class CaptureProcess:
    """A supervised capture. `start()`, then `wait()` or `stop()`; both raise what ended it, if that has a name."""

    def __init__(
        self,
        source: PostgresSource,
        *,
        slot: str,
        log: str | Path,
        settings: CaptureSettings,
        until: Until | None = None,
        notify: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self._task = {
            "url": source.url,
            "publication": source.publication,
            "slot": slot,
            "log": str(log),
            "until": until,
            "settings": settings.model_dump(mode="json", exclude_unset=True),
        }
        self._storage = open_storage(log)
        self._notify = notify
        self._stopping = threading.Event()
        self._child: subprocess.Popen[str] | None = None
        self._error: WalrelayError | None = None
        self._thread = threading.Thread(target=self._supervise, name="walrelay-capture", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None or child.poll() is not None else child.pid

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def status(self) -> CaptureStatus | None:
        """What the process last said about itself."""
        return read_status(self._storage)

    def check(self) -> None:
        """Raise what ended it."""
        if self._error is not None:
            raise self._error

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended by itself."""
        self._thread.join(timeout)
        self.check()
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it cleanly: what is committed and received is published, and the slot confirmed."""
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                began = read_lineage(self._storage) is not None
                child.wait(PATIENCE_SECONDS if began else FIRST_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
        if self._thread.ident is not None:  # it may be stopped before it was started
            self._thread.join()
        self.check()

    def _supervise(self) -> None:
        try:
            self._keep_running()
        except Exception as error:  # or nobody would know that there is no capture any more
            self._error = CaptureDiedError(f"capture can no longer be watched ({type(error).__name__}: {error})")

    def _keep_running(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                code = self._run_child()
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            except OSError as error:
                code, how = 1, f"could not be started ({error.strerror})"
            if code == 0 or self._error is not None or self._stopping.is_set():
                return
            attempt = 1 if time.monotonic() - begun > STEADY_SECONDS else attempt + 1
            delay = delay_of(attempt, FIRST_DELAY, LONGEST_DELAY).total_seconds()
            self._notify(
                Notice.warning(
                    "capture starts again",
                    f"capture {how}; it starts again in {delay:.1f} s, where it was",
                    why=how,
                    after_seconds=delay,
                )
            )
            self._stopping.wait(delay)

    def _run_child(self) -> int:
        """One life of the process: its exit code."""
        # A session of its own: Ctrl-C in a terminal reaches us, and we end it in our order.
        child = subprocess.Popen(
            [sys.executable, "-m", "walrelay.capture.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._child = child
        assert child.stdin is not None and child.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has died already
                child.stdin.write(json.dumps(self._task) + "\n")
                child.stdin.flush()
            if self._stopping.is_set():
                child.terminate()
            for line in child.stdout:
                self._hear(line)
            code = child.wait()
        finally:
            child.stdout.close()
            with suppress(BrokenPipeError):  # what it did not read is still in the pipe's buffer
                child.stdin.close()
        if code == NAMED_FAILURE and self._error is None:
            self._error = CaptureDiedError("capture failed without saying why")
        return code

    def _hear(self, line: str) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        if "error" in said:
            self._error = from_text(said["error"]) or CaptureDiedError("capture failed in an unknown way")
        elif "notice" in said:
            self._notify(
                Notice(said["event"], said["notice"], said["weight"], **said["fields"])
                if "event" in said
                else said["notice"]
            )
