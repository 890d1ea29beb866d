"""Spark when somebody first needs it: most of a short run's time would be the start of a JVM that has nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from walrelay.errors import StoppedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.05
GRACE_SECONDS = 3.0
"""How long a start may go on after the pipeline was told to stop: usually it is through by then, and ends in order."""


class SparkOnDemand:
    """Calling it gives the session, which the first call starts in a thread of its own: who waits for it can be
    stopped, with `StoppedError`. A start that fails is tried again by the next call."""

    def __init__(self, start: Callable[[], SparkSession], stopping: threading.Event) -> None:
        self._start = start
        self._stopping = stopping
        self._lock = threading.Lock()
        self._session: Future[SparkSession] | None = None

    @property
    def started(self) -> SparkSession | None:
        """The session, if there is one by now."""
        session = self._session
        return None if session is None or not session.done() or session.exception() else session.result()

    def begin(self) -> Future[SparkSession]:
        """Without waiting for it."""
        with self._lock:
            session = self._session
            if session is None or (session.done() and session.exception()):
                session = self._session = Future()
                threading.Thread(target=self._run, args=(session,), name="walrelay-start-spark", daemon=True).start()
            return session

    def __call__(self) -> SparkSession:
        session, looks = self.begin(), 0
        while True:
            try:
                return session.result(LOOK_SECONDS)
            except TimeoutError:
                looks += self._stopping.is_set()
                if looks * LOOK_SECONDS > GRACE_SECONDS and not session.done():
                    raise StoppedError("stopped while Spark was starting") from None

    def _run(self, session: Future[SparkSession]) -> None:
        try:
            session.set_result(self._start())
        except BaseException as error:  # raised by whoever wants the session
            session.set_exception(error)
