"""`walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.summary import show_summary
from walrelay.config.settings import CaptureSettings, CopySettings
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError
from walrelay.log.capture import Until
from walrelay.pipeline import Mode, Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import stop_session

INTERRUPTED = 130


@dataclass(frozen=True)
class Changes:
    """What the change road needs beside the source."""

    log: str
    slot: str | None
    until: Until | None
    capture: CaptureSettings


def run_changes(
    source: PostgresSource,
    destination: Destination,
    settings: CopySettings,
    changes: Changes,
    spark_settings: Mapping[str, str],
) -> int:
    """The exit code: 0 when it ended as asked, caught up or stopped by a signal."""
    console = stderr_console()
    try:
        with progress_display(plain=True) as listener:
            pipeline = Pipeline(
                source,
                destination,
                mode="changes",
                settings=settings,
                spark_settings=spark_settings,
                listener=listener,
                log=changes.log,
                slot=changes.slot,
                capture=changes.capture,
            )
            with graceful_stop(pipeline.shutdown):
                summary = pipeline.run(changes.until)
    finally:
        stop_session()
    console.print(f"[bold]{summary.changes:,} changes[/] in {duration(summary.seconds)}; the log is in {changes.log}")
    return 0


@contextmanager
def graceful_stop(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for an end, the second one ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, _frame: object) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        stderr_console().print("stopping; once more to stop at once")
        stop()

    for number in before:
        signal.signal(number, asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_copy(
    source: PostgresSource,
    destination: Destination,
    mode: str,
    settings: CopySettings,
    spark_settings: Mapping[str, str],
) -> int:
    """The exit code: 0 when all rows are durable."""
    try:
        # On a terminal a board that moves and rows that scroll do not go together.
        with progress_display(plain=destination.name == "stdout") as listener:
            pipeline = Pipeline(
                source,
                destination,
                mode=cast(Mode, mode),
                settings=settings,
                spark_settings=spark_settings,
                listener=listener,
            )
            summary = pipeline.run()
    except CopyFailedError as error:
        if error.summary is None:
            raise
        show_summary(error.summary)
        return 1
    except KeyboardInterrupt:
        stderr_console().print("stopped; no table is half-written")
        return INTERRUPTED
    finally:
        stop_session()
    show_summary(summary)
    return 0
