"""The streaming query over the change log: Spark says when and how far, somebody else does the work."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.errors import SparkJobError, WalrelayError
from walrelay.model.lsn import Lsn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "50 milliseconds"
"""How often Spark looks at the log: a change waits half of it, on average."""
_SHARED_MEMORY = Path("/dev/shm")
PREFIX = "walrelay-checkpoint-"


def sweep(root: Path) -> None:
    """Remove the checkpoints of processes that were killed."""
    for left in root.glob(f"{PREFIX}*-*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


class ChangeQuery:
    """Calls `take(to)` for every batch, where `to` is the end of the last transaction that the log held.

    The checkpoint is made anew for each run and thrown away: progress is the store's and the destination's.
    """

    def __init__(self, spark: SparkSession, log: str, start: Lsn, take: Callable[[Lsn], None], name: str) -> None:
        self._spark = spark
        self._log = log
        self._start = start
        self._take = take
        self._name = name
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._checkpoint: Path | None = None
        self._stopping = threading.Event()
        self._starter: threading.Thread | None = None

    def start(self) -> None:
        """In the background: Spark takes seconds to start a query."""
        self._starter = threading.Thread(target=self._start_query, name="walrelay-query-start", daemon=True)
        self._starter.start()

    def _start_query(self) -> None:
        try:
            self._build()
        except BaseException as error:  # raised by check()
            self._error = error

    def _build(self) -> None:
        # Spark writes the checkpoint twice a batch: memory will do where there is some.
        local = (self._spark.sparkContext.master or "").startswith("local")
        root = _SHARED_MEMORY if local and _SHARED_MEMORY.is_dir() else None
        sweep(root or Path(tempfile.gettempdir()))
        self._checkpoint = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
        stream = self._spark.readStream.format("walrelay").option("log", self._log).option("from", str(self._start))
        self._query = (
            stream.load()
            .writeStream.foreachBatch(self._batch)
            .queryName(self._name)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def check(self) -> None:
        """Raise what ended the query."""
        if self._error is not None:
            raise self._error
        if self._query is not None and not self._query.isActive and not self._stopping.is_set():
            failure = self._query.exception()
            raise SparkJobError(f"the streaming query ended: {str(failure).splitlines()[0] if failure else 'stopped'}")

    def stop(self) -> None:
        self._stopping.set()
        if self._starter is not None:
            self._starter.join()
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _batch(self, _: DataFrame, batch_id: int) -> None:
        """Spark's callback, one batch after the other, in a thread of its own."""
        if self._stopping.is_set():
            return
        try:
            self._take(self._end_of(batch_id))
        except BaseException as error:
            self._error = error
            if isinstance(error, WalrelayError):
                raise RuntimeError(error.to_text()) from None
            raise

    def _end_of(self, batch_id: int) -> Lsn:
        """The end offset of a batch, from the log that Spark keeps of its offsets."""
        assert self._checkpoint is not None
        written = (self._checkpoint / "offsets" / str(batch_id)).read_text()
        offset: dict[str, Any] = json.loads(written.strip().splitlines()[-1])
        return Lsn.parse(offset["lsn"])
