"""A log that somebody else writes: there is nothing to run, only to follow."""

from __future__ import annotations

import time
from collections.abc import Callable

from walrelay.log.failures import LogNotFedError
from walrelay.log.status import CaptureStatus, read_status
from walrelay.log.storage import open_storage
from walrelay.model.notice import Notice

SILENT_SECONDS = 30.0
"""A capture that runs writes its status down every few seconds."""


class FollowedLog:
    """At `location`. With `patience`, so many seconds without anybody who writes are an error; else they are told."""

    def __init__(
        self, location: str, *, patience: float | None = None, notify: Callable[[str], None] = lambda _: None
    ) -> None:
        self._location = location
        self._storage = open_storage(location)
        self._patience = patience
        self._notify = notify
        self._fed_at = time.monotonic()
        self._is_told = False

    def start(self) -> None:
        self._fed_at = time.monotonic()

    def check(self) -> None:
        if self._is_fed():
            self._fed_at, self._is_told = time.monotonic(), False
            return
        silent = time.monotonic() - self._fed_at
        if self._patience is not None and silent > self._patience:
            raise LogNotFedError(f"nobody writes to the change log at {self._storage.location('')}")
        if silent > SILENT_SECONDS and not self._is_told:
            self._is_told = True
            where = self._storage.location("")
            self._notify(
                Notice.warning(
                    "nobody writes to the change log",
                    f"nobody writes to the change log at {where}; waiting for a capture",
                    log=where,
                )
            )

    def _is_fed(self) -> bool:
        status = self.status()
        return status is not None and status.state != "stopped" and time.time() - status.at < SILENT_SECONDS

    def status(self) -> CaptureStatus | None:
        return read_status(self._storage)

    def wait(self, timeout: float | None = None) -> bool:
        self.check()
        return False

    def stop(self) -> None:
        pass
