"""A copy as a process that tests can kill: prints a line when it starts and at each step, then the row count."""

from __future__ import annotations

import sys

from saying import say

from walrelay import CopySettings, DuckDBDestination, Pipeline, PostgresSource
from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.workers.report import Silent


class Telling(Silent):
    def table_started(self, table: TableName, attempt: int) -> None:
        say("started", table)

    def table_writing(self, table: TableName, rows: int) -> None:
        say("writing", table)

    def notice(self, message: str) -> None:
        say("notice", message)


def main(url: str, path: str, busy_seconds: str) -> None:
    settings = CopySettings(range_bytes=4 * 1024 * 1024, busy_timeout=busy_seconds)  # type: ignore[arg-type]
    source = PostgresSource(url, publication="p")
    destination = DuckDBDestination(path, piece_bytes=512 * 1024)
    try:
        summary = Pipeline(source, destination, settings=settings, listener=Telling()).run()
    except WalrelayError as error:
        say("failed", error.code)
        sys.exit(1)
    say("rows", summary.rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
