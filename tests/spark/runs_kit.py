"""Pipelines one after the other on one database, whose troubles are collected and whose copies are counted."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import psycopg

from tests.spark.live_kit import Live
from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.pipeline import Pipeline
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import flushed_lsn
from walrelay.testing.both_sides import differences
from walrelay.workers.report import Silent
from walrelay.workers.status import PipelineStatus, TableStatus

EQUAL_PATIENCE = 60.0
"""How long a running pipeline has until it must be equal."""
SETTLE_PATIENCE = 15.0
"""How long steps wait for what came before them. Nothing is asserted by it."""
CATCH_UP_PATIENCE = 90.0
READY_PATIENCE = 150.0


def can_migrate_source() -> bool:
    """Whether this version knows the DDL trigger."""
    return "migrate_source" in inspect.signature(Pipeline.__init__).parameters


def asked_for(trigger: bool) -> dict[str, bool]:
    """What a pipeline is given for the trigger; nothing while there is none."""
    return {"migrate_source": trigger} if can_migrate_source() else {}


class Copies(Silent):
    """A listener that counts copies, over all runs of a test."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.begun_again: Counter[str] = Counter()
        """Copies that gave way to a lock, or lost a connection, before they were through."""
        self.notices: list[str] = []

    def table_started(self, table: TableName, attempt: int) -> None:
        self.started[str(table)] += 1

    def table_retrying(self, table: TableName, error: WalrelayError, delay: float) -> None:
        self.begun_again[str(table)] += 1
        self.notices.append(f"{table} is tried again: {error}")

    def notice(self, message: str) -> None:
        self.notices.append(message)


@dataclass
class Runs:
    """What goes wrong is collected, and said at the end with everything else."""

    live: Live
    trigger: bool
    copies: Copies = field(default_factory=Copies)
    troubles: list[str] = field(default_factory=list)

    def start(self) -> Pipeline:
        pipeline = self.live.pipeline(listener=self.copies, **asked_for(self.trigger))
        pipeline.start()
        return pipeline

    def start_ready(self) -> Pipeline:
        """With all tables copied; a test that does not come so far has failed."""
        pipeline = self.start()
        if not self.wait_ready(pipeline):
            self.end(pipeline, 0)
            raise AssertionError(f"not all tables became ready: {pipeline.status()}; {self.troubles}")
        return pipeline

    def wait_running(self, pipeline: Pipeline) -> bool:
        """Until it has looked at the tables."""
        return self._wait(pipeline, lambda status: bool(status.tables), READY_PATIENCE)

    def wait_ready(self, pipeline: Pipeline) -> bool:
        """Until all tables are copied, and follow."""

        def ready(status: PipelineStatus) -> bool:
            return bool(status.tables) and all(one.phase == "ready" for one in status.tables)

        return self._wait(pipeline, ready, READY_PATIENCE)

    def settle(self, pipeline: Pipeline) -> None:
        """Until all that was committed before now is applied, or for a while: a pipeline that cannot is found later."""
        with connect(self.live.source) as connection:
            target = flushed_lsn(connection)

        def settled(status: PipelineStatus) -> bool:
            return pipeline._live is not None and pipeline._live.head() >= target and _is_applied(status)

        self._wait(pipeline, settled, SETTLE_PATIENCE)

    def wait_equal(self, pipeline: Pipeline) -> None:
        """Until both sides are equal, which a source at rest and a running pipeline must become."""

        def equal(_: PipelineStatus) -> bool:
            try:
                return not any(differences(self.live.url, "p", self.live.file).values())
            except (duckdb.Error, psycopg.Error):
                return False  # the file is being written to

        if not self._wait(pipeline, equal, EQUAL_PATIENCE, every=0.3):
            self.troubles.append(f"not equal while the pipeline ran, within {EQUAL_PATIENCE:.0f} s")

    @staticmethod
    def _wait(pipeline: Pipeline, holds: Callable[[PipelineStatus], bool], seconds: float, every: float = 0.05) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and pipeline._thread is not None and pipeline._thread.is_alive():
            status = pipeline.status()
            if status is not None and holds(status):
                return True
            time.sleep(every)
        return False

    @staticmethod
    def kill_capture(pipeline: Pipeline) -> None:
        """The process beside the pipeline; another one takes its place."""
        pid = None if pipeline._live is None else pipeline._live._parts.process.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def stop(self, pipeline: Pipeline) -> None:
        pipeline.shutdown()
        if not self.end(pipeline, CATCH_UP_PATIENCE):
            raise AssertionError(f"a pipeline did not stop within {CATCH_UP_PATIENCE:.0f} s")

    def catch_up(self, **more: object) -> None:
        """One more run, until it is caught up."""
        pipeline = self.live.pipeline(listener=self.copies, **asked_for(self.trigger), **more)
        pipeline.start("caught-up")
        if not self.end(pipeline, CATCH_UP_PATIENCE):
            behind = [f"{one.name} is {one.phase}" for one in _tables(pipeline) if one.phase != "ready"]
            self.troubles.append(f"not caught up within {CATCH_UP_PATIENCE:.0f} s: {', '.join(behind)}")
            self.stop(pipeline)

    def end(self, pipeline: Pipeline, seconds: float) -> bool:
        """Whether it ends by then; what ended it is among the troubles."""
        if pipeline._thread is None:
            return True
        try:
            return pipeline.wait(seconds) is not None
        except WalrelayError as error:
            if error.code != "testing.failpoint":
                self.troubles.append(f"a pipeline ended with {error.code}: {error.message}")
            return True


def _tables(pipeline: Pipeline) -> tuple[TableStatus, ...]:
    status = pipeline.status()
    return () if status is None else status.tables


def _is_applied(status: PipelineStatus) -> bool:
    """Whether all tables have what is in the log."""
    return status.log_end is not None and all(
        one.phase == "ready" and one.position is not None and one.position >= status.log_end for one in status.tables
    )
