"""What a running pipeline is made of."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.log.reader import LogReader
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.postgres.source import PostgresSource
from walrelay.shaping.shaping import Shaping
from walrelay.sources.feed import Feed
from walrelay.spark.on_demand import SparkOnDemand
from walrelay.spark.secret_log import LazyAddress
from walrelay.stores.base import PipelineLock, PipelineStore
from walrelay.workers.report import Listener


@dataclass(frozen=True)
class RunParts:
    """Of a pipeline in any mode."""

    id: str
    source: PostgresSource
    destination: Destination
    store: PipelineStore
    settings: CopySettings
    spark: SparkOnDemand
    staging: Path
    listener: Listener
    stopping: threading.Event
    shaping: Shaping


@dataclass(frozen=True)
class LiveParts(RunParts):
    """Of one that runs on."""

    log: LogReader
    location: str
    address: LazyAddress
    """The same, for Spark."""
    lineage: Lineage
    process: Feed
    lock: PipelineLock
    source_lsn: Lsn
    """Where the source's WAL ended at the start."""
    copies: bool
    """Whether tables are copied first (mode `both`)."""
    reader: str
    """What it is called among the log's readers."""

    @property
    def every(self) -> timedelta:
        """Between two batches: what the user wants, or else the destination."""
        wanted = self.settings.every
        return self.destination.capabilities.batching.every if wanted is None else wanted

    def batch(self, after: Lsn, to: Lsn, ranges: tuple[TableRange, ...]) -> EventBatch:
        log = self.address
        return EventBatch(self.log, after, to, ranges, location=log.location, format=log.format, spark=self.spark)
