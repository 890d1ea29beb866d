"""A pipeline as a process that tests can kill: prints a line when all tables are ready, and one at its end.

Its task comes as JSON on the command line; failpoints are armed in this process alone, not in the capture beside it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from saying import say

from walrelay.capture import process as capture_process
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.destinations.base import Destination
from walrelay.destinations.delta.destination import DeltaDestination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.iceberg.destination import IcebergDestination
from walrelay.destinations.urls import destination_from_url
from walrelay.errors import WalrelayError
from walrelay.failpoints import arm
from walrelay.model.names import TableName
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.change_query import ChangeQuery
from walrelay.spark.session import stop_session
from walrelay.stores.sqlite import SqliteStore
from walrelay.workers.report import Silent, TableReport


class Telling(Silent):
    def table_started(self, table: TableName, attempt: int) -> None:
        say("copying", table)

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        say("retrying", table, error.code, f"{seconds:.1f}")

    def table_finished(self, report: TableReport) -> None:
        say("finished", report.name, report.error.code if report.error else "")

    def notice(self, message: str) -> None:
        say("notice", message)


def destination(task: dict[str, Any], directory: Path) -> Destination:
    match task.get("lake"):
        case "delta":
            return DeltaDestination(directory / "lake")
        case "iceberg":
            return IcebergDestination(directory / "lake")
        case str() as url if "://" in url:
            return destination_from_url(url)
        case _:
            return DuckDBDestination(directory / "out.duckdb", piece_bytes=task["piece_bytes"])


def main(text: str) -> int:
    task = json.loads(text)
    directory = Path(task["directory"])
    arm(task["failpoints"])
    capture_process.LONGEST_DELAY = timedelta(seconds=0.5)  # it is killed more often than in any life
    pipeline = Pipeline(
        PostgresSource(task["url"], publication="p"),
        destination(task, directory),
        SqliteStore(directory / "state.sqlite", "killed"),
        mode="both",
        id="killed",
        log=directory / "log",
        slot=task["slot"],
        listener=Telling(),
        settings=copy_settings(retry_delay=0.1, every=0.2 if task.get("lake") else None),
        spark_settings=task.get("spark"),
        capture=capture_settings(**{"segment_age": 0.02, "retry_delay": 0.05, **task["capture"]}),
        **task.get("pipeline", {}),
    )
    tell_first_calls()
    threading.Thread(target=tell, args=(pipeline,), daemon=True).start()
    try:
        summary = pipeline.run(task["until"])
    except WalrelayError as error:
        say("failed", error.code, error.message)
        return 1
    finally:
        stop_session()
    say("done", summary.changes)
    return 0


def tell_first_calls() -> None:
    """Say of every streaming query that Spark has begun to call."""
    batch = ChangeQuery._batch

    def told(query: ChangeQuery, frame: Any, number: int) -> None:
        first = not query._begun.is_set()
        batch(query, frame, number)
        if first:
            say("spark calls")

    ChangeQuery._batch = told  # type: ignore[method-assign]


def tell(pipeline: Pipeline) -> None:
    """Say once that there is something to kill, and once that all tables are ready."""
    said = False
    while True:
        status = pipeline.status()
        if status is not None and status.tables:
            if not said:
                say("running")
                said = True
            if all(one.phase == "ready" for one in status.tables):
                say("ready")
                return
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
