"""The thread that looks at a pipeline now and then, and says what has changed."""

from __future__ import annotations

import logging
import threading
import time

from walrelay.telemetry.events import PHRASES, Event, Watchman
from walrelay.telemetry.hooks import Messenger
from walrelay.telemetry.log import log_event
from walrelay.telemetry.look import Look, Looker

STATUS_SECONDS = 60.0
"""Between two lines in the log about the whole."""


class Watch:
    """`latest` is the last look, from any thread."""

    def __init__(self, looker: Looker, messenger: Messenger, every: float) -> None:
        self._looker = looker
        self._messenger = messenger
        self._every = every
        self._watchman = Watchman()
        self._stopping = threading.Event()
        self._latest: Look | None = None
        self._told_at = time.monotonic()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="walrelay-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self) -> Look | None:
        return self._latest

    def stop(self) -> None:
        """After a last look, so that what ended the pipeline is told as well."""
        self._stopping.set()
        self._thread.join()

    def tell(self, event: Event) -> None:
        """The log and the hooks hear of it."""
        level, phrase = PHRASES[event.name]
        failed = event.fields.get("outcome") == "failed"
        log_event(logging.ERROR if failed else logging.getLevelNamesMapping()[level.upper()], phrase, event.fields)
        self._messenger.tell(event)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(self._every)
            look = self._looker.look(ended=is_last)
            self._latest = look
            for event in self._watchman.news(look):
                self.tell(event)
            self._say(look)

    def _say(self, look: Look) -> None:
        """A line about the whole now and then, and one when the pipeline can no longer be looked at."""
        failure = "" if look.failure is None else type(look.failure).__name__
        if failure and failure != self._failure:
            log_event(logging.WARNING, "pipeline cannot be looked at", {"error": failure})
        self._failure = failure
        if look.status is None or time.monotonic() - self._told_at < STATUS_SECONDS:
            return
        self._told_at = time.monotonic()
        status = look.status
        lag = None if status.lag_seconds is None else round(status.lag_seconds, 3)
        ready = sum(one.phase == "ready" for one in status.tables)
        fields = {"tables": len(status.tables), "ready": ready, "changes": status.changes, "lag_seconds": lag}
        log_event(logging.INFO, "pipeline status", {**fields, "position": str(status.position)})
