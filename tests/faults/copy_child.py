"""A copy as a process that tests can kill: prints a line when it starts and at each step, then the row count."""

from __future__ import annotations

import sys

from walrelay import CopySettings, DuckDBDestination, Pipeline, PostgresSource
from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.workers.report import Silent


class Telling(Silent):
    def table_started(self, table: TableName, attempt: int) -> None:
        print("started", table, flush=True)

    def table_writing(self, table: TableName, rows: int) -> None:
        print("writing", table, flush=True)

    def notice(self, message: str) -> None:
        print("notice", message, flush=True)


def main(url: str, path: str, busy_seconds: str) -> None:
    settings = CopySettings(range_bytes=4 * 1024 * 1024, busy_timeout=busy_seconds)  # type: ignore[arg-type]
    source = PostgresSource(url, publication="p")
    destination = DuckDBDestination(path, piece_bytes=512 * 1024)
    try:
        summary = Pipeline(source, destination, settings=settings, listener=Telling()).run()
    except WalrelayError as error:
        print("failed", error.code, flush=True)
        sys.exit(1)
    print("rows", summary.rows, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
