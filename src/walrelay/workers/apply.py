"""The apply worker: one Structured Streaming query over the change log, which hands each batch to the destination.

Spark says which LSNs a batch spans; the destination reads the log itself, or asks for a DataFrame. The progress that
counts is kept as a reader's position in the log, and in the destination where it has its own; Spark's checkpoint is
made anew for each run and thrown away.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from walrelay.destinations.base import Destination
from walrelay.destinations.events import EventBatch
from walrelay.errors import SparkJobError, WalrelayError
from walrelay.failpoints import hit
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions
from walrelay.model.lsn import Lsn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "50 milliseconds"
"""How often Spark looks at the log: a change waits half of it, on average."""
_SHARED_MEMORY = Path("/dev/shm")


class ApplyWorker:
    """Applies the log to a destination from where `reader` stands. `start()`, then `check()` now and then, `stop()`."""

    def __init__(
        self,
        spark: SparkSession,
        log: str,
        destination: Destination,
        reader: str,
    ) -> None:
        self._spark = spark
        self._location = log
        self._log = LogReader(log)
        self._positions = ReaderPositions(self._log.storage)
        self._destination = destination
        self._reader = reader
        self._lock = Lock()
        self._error: WalrelayError | None = None
        self._query: StreamingQuery | None = None
        self._checkpoint = Path()
        self._position = self._resume()
        self.rows = 0
        """Changes written by this worker."""

    @property
    def position(self) -> Lsn:
        """Everything up to here is durable in the destination."""
        return self._position

    @property
    def log(self) -> LogReader:
        return self._log

    def start(self) -> None:
        # The checkpoint is disposable, and Spark writes it twice a batch: memory will do where there is some.
        local = (self._spark.sparkContext.master or "").startswith("local")
        root = _SHARED_MEMORY if local and _SHARED_MEMORY.is_dir() else None
        self._checkpoint = Path(tempfile.mkdtemp(prefix="walrelay-checkpoint-", dir=root))
        stream = self._spark.readStream.format("walrelay").option("log", self._location)
        self._query = (
            stream.option("from", str(self._position))
            .load()
            .writeStream.foreachBatch(self._take)
            .queryName(f"walrelay {self._reader}")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def check(self) -> None:
        """Raise what ended the query."""
        if self._error is not None:
            raise self._error
        if self._query is not None and not self._query.isActive:
            failure = self._query.exception()
            raise SparkJobError(f"the streaming query ended: {str(failure).splitlines()[0] if failure else 'stopped'}")

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None
        shutil.rmtree(self._checkpoint, ignore_errors=True) if self._checkpoint.name else None

    def _resume(self) -> Lsn:
        """Where to go on: the destination's own word counts most, then the reader's position, then the log's start."""
        recorded = self._positions.positions().get(self._reader)
        own = self._destination.applied_lsn(None)
        position = own if own is not None else recorded
        if position is None:
            position = self._log.start()
        if recorded is None or position > recorded:
            self._positions.record(self._reader, position)
        return position

    def _take(self, _: DataFrame, batch_id: int) -> None:
        """Spark's callback, one batch after the other."""
        with self._lock:
            try:
                to = self._end_of(batch_id)
                if to <= self._position:
                    return
                batch = EventBatch(self._log, self._position, to, location=self._location, spark=self._spark)
                hit("events.before_write")
                result = self._destination.write_events(batch)
                hit("events.after_write")
                if not result.durable:
                    raise SparkJobError("the destination took the changes but did not make them durable")
                self._positions.record(self._reader, to)
                hit("progress.after_record")
                self._position = to
                self.rows += result.rows
            except WalrelayError as error:
                self._error = error
                raise

    def _end_of(self, batch_id: int) -> Lsn:
        """The end offset of a batch, from the log that Spark keeps of its offsets."""
        written = (self._checkpoint / "offsets" / str(batch_id)).read_text()
        offset: dict[str, Any] = json.loads(written.strip().splitlines()[-1])
        return Lsn.parse(offset["lsn"])
