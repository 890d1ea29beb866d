"""The streaming query over the change log: Spark says when, the log how far, and somebody else does the work."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from walrelay.backoff import delay_of
from walrelay.changes.spark_failures import insist, spark_failures
from walrelay.destinations.staging import SHARED_MEMORY, RunDirectory, temporary_root
from walrelay.errors import SparkJobError, SparkLostError, WalrelayError, from_text
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.notice import Notice
from walrelay.spark.secret_log import log_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "50 milliseconds"
"""How often Spark looks at the log: a change waits half of it, on average."""
BRIDGE_SECONDS = 0.05
SETTLE_SECONDS = 3.0
"""A query takes several seconds of a processor to start. First copies are better off without, and what is done by then
needs none."""
LONG_SETTLE_SECONDS = 60.0
"""… in a run that ends once it has caught up: until then the log is looked at as often without Spark."""
ATTEMPTS = 8
"""How often in a row a query is begun that ends soon, without having called. When several of Spark's Python processes
are killed, each of them costs an attempt."""
FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=0.5), timedelta(seconds=10)
"""Before a lost query is begun again; twice as long each time in a row."""
STEADY_SECONDS = 30.0
"""A query that lived this long was well, also when nothing came for which it could have called."""
_MANAGER_PACKAGES = ("checkpointing.", "")
"""Where Spark's versions have the class."""
_STARTING = threading.Lock()
"""One query starts at a time: one that is no longer wanted may still be at it when the next of its name comes."""


def _light_session(spark: SparkSession) -> SparkSession:
    """The same Spark with settings of our own: nobody goes on from this checkpoint, and with the defaults writing it
    takes longer than the batch (without Hadoop's native library every file costs several processes)."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    session = spark.newSession()
    session.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
    for package in _MANAGER_PACKAGES:
        name = f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
        with suppress(Py4JError):
            assert spark.sparkContext._jvm is not None
            spark.sparkContext._jvm.java.lang.Class.forName(name)
            session.conf.set("spark.sql.streaming.checkpointFileManagerClass", name)
            break
    return session


class ChangeQuery:
    """Calls `take(to)` for every batch, where `to` is the end of the last transaction that the log holds.

    The checkpoint is made anew for each run and thrown away: progress is the store's and the destination's.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        log: str,
        start: Lsn,
        take: Callable[[Lsn], None],
        name: str,
        notify: Callable[[str], None],
        settle: float = SETTLE_SECONDS,
    ) -> None:
        self._spark = spark
        self._location = log
        self._log = LogView(log)
        self._start = start
        self._take = take
        self._name = name
        self._notify = notify
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._checkpoint: RunDirectory | None = None
        self._stopping = threading.Event()
        self._begun = threading.Event()
        """Spark has called for the first time."""
        self._taking = threading.Lock()
        self._owning = threading.Lock()
        """For whoever decides what becomes of the query."""
        self._bridging: threading.Thread | None = None
        self._attempts = 0
        self._delay = settle
        self._living_since = math.inf
        """When Spark has started it; never, while it has not."""

    def start(self) -> None:
        """In the background: Spark takes seconds to start a query, and more to its first batch. What comes meanwhile
        is taken without it."""
        self._attempts += 1
        threading.Thread(target=self._start_query, name="walrelay-start-query", daemon=True).start()
        if self._bridging is None or not self._bridging.is_alive():
            self._bridging = threading.Thread(target=self._bridge, name="walrelay-bridge", daemon=True)
            self._bridging.start()

    def _start_query(self) -> None:
        if self._stopping.wait(self._delay):
            return
        try:
            with _STARTING:
                if not self._stopping.is_set():
                    with spark_failures("starting the streaming query"):
                        query = self._build()
                    with self._owning:
                        self._query = query
                        self._living_since = time.monotonic()
                    if self._stopping.is_set():
                        self._end()
        except BaseException as error:
            self._end()
            self._failed(error)

    def _failed(self, failure: BaseException | None) -> None:
        """Begin again, unless it is an error of ours or comes again and again: any process of Spark's may be killed, or
        take longer to start than Spark waits, and nothing is lost meanwhile. Otherwise leave it to `check` to raise."""
        if self._stopping.is_set():
            return  # one that is not wanted any more may end as it likes
        known = failure if isinstance(failure, WalrelayError) else from_text(str(failure))
        why = str(failure).strip().partition("\n")[0] if failure else "stopped"
        if time.monotonic() - self._living_since > STEADY_SECONDS:
            self._attempts = 0
        self._living_since = math.inf
        if known is not None and type(known) is not SparkJobError:
            self._error = known
        elif self._attempts < ATTEMPTS:
            self._delay = delay_of(self._attempts + 1, FIRST_DELAY, LONGEST_DELAY).total_seconds()
            self._notify(
                Notice.warning(
                    "streaming query begins again",
                    f"Spark lost its streaming query ({why}); it begins again, and changes come in meanwhile",
                    attempt=self._attempts + 1,  # not why: Spark's words may hold anything
                )
            )
            self._begun.clear()
            self.start()
        else:
            self._error = SparkJobError(f"the streaming query ended: {why}")

    def _bridge(self) -> None:
        while not (self._begun.wait(BRIDGE_SECONDS) or self._stopping.is_set()):
            try:
                with self._taking:
                    if (end := self._log.end()) > self._start:
                        self._take_to(end)
            except BaseException as error:  # raised by check()
                self._error = error
                return

    def _take_to(self, end: Lsn) -> None:
        self._take(end)
        self._start = end  # of the next query, if this one is lost

    def _build(self) -> StreamingQuery:
        # Spark writes the checkpoint twice a batch: memory will do where there is some.
        spark = self._spark()
        local = (spark.sparkContext.master or "").startswith("local")
        self._checkpoint = RunDirectory(temporary_root(SHARED_MEMORY if local and SHARED_MEMORY.is_dir() else None))
        session = _light_session(spark)
        log = log_address(session, self._location)
        stream = session.readStream.format(log.format).option("log", log.location).option("from", str(self._start))
        return (
            stream.load()
            .writeStream.foreachBatch(self._batch)
            .queryName(self._name)
            .option("checkpointLocation", str(self._checkpoint.path / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def check(self) -> None:
        """Raise what ended the query for good."""
        query = self._query
        if (
            self._error is None
            and query is not None
            and not insist("watching the streaming query", lambda: query.isActive)
            and not self._stopping.is_set()
        ):
            failure = insist("asking why the streaming query ended", query.exception)
            if self._error is None:  # else what we raised ourselves ended it
                self._end()
                self._failed(failure)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Nothing is taken any more when this returns. A query that is still starting is not waited for: it is stopped
        as soon as it has started."""
        self._stopping.set()
        if self._bridging is not None:
            self._bridging.join()
        self._end()
        with self._taking:
            pass  # Spark may have called already, and not yet told us that it has started

    def _end(self) -> None:
        with self._owning:
            query, self._query = self._query, None
            checkpoint, self._checkpoint = self._checkpoint, None
        if query is not None:
            with suppress(SparkLostError):  # then there is nothing to stop
                insist("stopping the streaming query", query.stop)
        if checkpoint is not None:
            checkpoint.remove()

    def _batch(self, _: DataFrame, _batch_id: int) -> None:
        """Spark's callback, one batch after the other, in a thread of its own."""
        self._begun.set()
        self._attempts = 0
        try:
            with self._taking:
                if not self._stopping.is_set():
                    # As far as the log is by now, not as it was when Spark looked.
                    self._take_to(self._log.end())
        except BaseException as error:
            self._error = error
            if isinstance(error, WalrelayError):
                raise RuntimeError(error.to_text()) from None
            raise
