"""A pipeline into DuckDB, running, for the benchmarks that watch one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from walrelay.config.settings import CaptureSettings, CopySettings
from walrelay.destinations.base import Destination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import spark_session
from walrelay.stores.sqlite import SqliteStore
from walrelay.workers.status import PipelineStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.005


@contextmanager
def running(
    url: str,
    publication: str,
    capture: CaptureSettings | None = None,
    *,
    into: Callable[[Path], Destination] = lambda directory: DuckDBDestination(directory / "out.duckdb"),
    settings: CopySettings | None = None,
    spark: SparkSession | None = None,
) -> Iterator[tuple[Pipeline, Path]]:
    """It and the directory of all that it keeps; every table is ready."""
    with tempfile.TemporaryDirectory(prefix="walrelay-bench-") as name:
        directory = Path(name)
        pipeline = Pipeline(
            PostgresSource(url, publication=publication),
            into(directory),
            SqliteStore(directory / "state.sqlite", "bench"),
            mode="both",
            spark=spark_session(spark),
            settings=settings,
            log=directory / "log",
            slot="bench",
            capture=capture,
        )
        pipeline.start()
        try:
            wait_until(pipeline, lambda: all_ready(status_of(pipeline)), every=0.25)
            yield pipeline, directory
        finally:
            pipeline.shutdown()
            pipeline.wait()


def all_ready(status: PipelineStatus) -> bool:
    return bool(status.tables) and all(table.phase == "ready" for table in status.tables)


def status_of(pipeline: Pipeline) -> PipelineStatus:
    while (status := pipeline.status()) is None:
        pipeline.wait(POLL_SECONDS)
    return status


def wait_until(pipeline: Pipeline, condition: Callable[[], bool], every: float = POLL_SECONDS) -> None:
    while not condition():
        assert pipeline.wait(every) is None, "the pipeline ended"


def has_applied(pipeline: Pipeline, end: Lsn) -> bool:
    """Whether everything up to `end` is in the destination: what is not in the log up to its head is nothing."""
    status = status_of(pipeline)
    assert status.position is not None and status.log_end is not None and pipeline.log is not None
    return status.position >= status.log_end and LogView(pipeline.log).head() >= end
