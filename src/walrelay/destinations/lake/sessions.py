"""Spark sessions for writing: settings of ours touch nobody else's, and each write has a session to itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from uuid import uuid4

from walrelay.errors import DestinationError, SparkLostError, StoppedError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from walrelay.destinations.base import DestinationContext

GRACE_SECONDS = 3.0
"""How long what is being written may take when the pipeline is told to stop: most is through by then. What is not comes
again at the next start."""
_WATCH_SECONDS = 0.25

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Written for a person's table, not for one query: a file for each task that has rows is enough.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "8",
    # The last change of each key is looked for once, where they are all together. Spark would sort them before, too,
    # to send fewer: most keys change once in a batch.
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    # Spark's own default counts nanoseconds: other readers then misread what is before 1677 or after 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class Sessions:
    """Of one run's Spark, used again: a new one takes a tenth of a second for its first statement."""

    def __init__(self, context: DestinationContext, settings: Mapping[str, str]) -> None:
        self._spark = context.spark
        self._stopping = context.stopping
        self._pipeline = context.pipeline_id
        self._settings = {**SETTINGS, **settings}
        self._free: SimpleQueue[SparkSession] = SimpleQueue()

    @contextmanager
    def session(self, doing: str) -> Iterator[SparkSession]:
        """One for this thread. Its jobs are described in Spark's pages by what it is doing, and have a tag: when the
        pipeline is told to stop they are cancelled, and nobody else's are."""
        try:
            session = self._free.get_nowait()
        except Empty:
            session = self._spark().newSession()
            for name, value in self._settings.items():
                session.conf.set(name, value)
        context, tag = session.sparkContext, f"walrelay-write-{uuid4().hex}"
        context.setLocalProperty("spark.job.description", f"walrelay {self._pipeline}: {doing}")
        context.addJobTag(tag)
        try:
            with self._given_up_on_stop(context, tag):
                yield session
        except (DestinationError, SparkLostError) as error:
            if self._stopping.is_set():
                raise StoppedError(f"the pipeline was stopped while {doing}") from error
            raise
        finally:
            with suppress(Exception):  # a Spark that is gone has neither
                context.removeJobTag(tag)
                context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            self._free.put(session)

    @contextmanager
    def _given_up_on_stop(self, context: SparkContext, tag: str) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not self._stopping.is_set():
                if done.wait(_WATCH_SECONDS):
                    return
            if not done.wait(GRACE_SECONDS):
                while not done.wait(_WATCH_SECONDS):
                    with suppress(Exception):  # a Spark that is gone has no jobs
                        context.cancelJobsWithTag(tag)

        watcher = threading.Thread(target=watch, name="walrelay write watcher", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@contextmanager
def set_for(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """With these settings for one statement: those that guard a commit would silently swallow another one's."""
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
