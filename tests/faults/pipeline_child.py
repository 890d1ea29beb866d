"""A pipeline as a process that tests can kill: prints a line when all tables are ready, and one at its end.

Its task comes as JSON on the command line; failpoints are armed in this process alone, not in the capture beside it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from walrelay.config.settings import capture_settings, copy_settings
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.errors import WalrelayError
from walrelay.failpoints import arm
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import stop_session
from walrelay.stores.sqlite import SqliteStore
from walrelay.workers.report import Silent


class Telling(Silent):
    def notice(self, message: str) -> None:
        print("notice", message, flush=True)


def main(text: str) -> int:
    task = json.loads(text)
    directory = Path(task["directory"])
    arm(task["failpoints"])
    pipeline = Pipeline(
        PostgresSource(task["url"], publication="p"),
        DuckDBDestination(directory / "out.duckdb", piece_bytes=task["piece_bytes"]),
        SqliteStore(directory / "state.sqlite", "killed"),
        mode="both",
        id="killed",
        log=directory / "log",
        slot=task["slot"],
        listener=Telling(),
        settings=copy_settings(retry_delay=0.1),
        spark_settings=task.get("spark"),
        capture=capture_settings(segment_age=0.02, retry_delay=0.05),
    )
    threading.Thread(target=tell, args=(pipeline,), daemon=True).start()
    try:
        summary = pipeline.run(task["until"])
    except WalrelayError as error:
        print("failed", error.code, error.message, flush=True)
        return 1
    finally:
        stop_session()
    print("done", summary.changes, flush=True)
    return 0


def tell(pipeline: Pipeline) -> None:
    """Say once that there is something to kill, and once that all tables are ready."""
    said = False
    while True:
        status = pipeline.status()
        if status is not None and status.tables:
            if not said:
                print("running", flush=True)
                said = True
            if all(one.phase == "ready" for one in status.tables):
                print("ready", flush=True)
                return
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
