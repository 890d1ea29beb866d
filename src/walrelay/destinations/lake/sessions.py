"""Spark sessions for writing: settings of ours touch nobody else's, and each write has a session to itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Written for a person's table, not for one query: a file for each task that has rows is enough.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "8",
}


class Sessions:
    """Of one Spark, used again: a new one takes a tenth of a second for its first statement."""

    def __init__(self, spark: Callable[[], SparkSession], settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._settings = {**SETTINGS, **settings}
        self._free: SimpleQueue[SparkSession] = SimpleQueue()

    @contextmanager
    def session(self, description: str) -> Iterator[SparkSession]:
        """One for this thread."""
        try:
            session = self._free.get_nowait()
        except Empty:
            session = self._spark().newSession()
            for name, value in self._settings.items():
                session.conf.set(name, value)
        context = session.sparkContext
        context.setLocalProperty("spark.job.description", description)
        try:
            yield session
        finally:
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            self._free.put(session)


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
