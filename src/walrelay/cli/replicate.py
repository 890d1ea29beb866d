"""`walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from walrelay.cli.live import live_display
from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.summary import show_summary
from walrelay.config.settings import CaptureSettings, CopySettings
from walrelay.control.status import LOG_DIRECTORY, STATE_FILE
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError
from walrelay.log.capture import Until
from walrelay.pipeline import Mode, Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import stop_session
from walrelay.stores.sqlite import SqliteStore

INTERRUPTED = 130


@dataclass(frozen=True)
class LiveTask:
    """What a pipeline that runs on needs besides source and destination."""

    mode: Mode
    id: str
    state: Path
    log: str | None
    slot: str | None
    until: Until | None
    capture: CaptureSettings


def run_live(
    source: PostgresSource,
    destination: Destination,
    settings: CopySettings,
    task: LiveTask,
    spark_settings: Mapping[str, str],
) -> int:
    """The exit code: 0 when it ended as asked, caught up or stopped by a signal."""
    console = stderr_console()
    log = task.log or str(task.state / LOG_DIRECTORY)
    task.state.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(task.state / STATE_FILE, task.id)
    try:
        with live_display(console, plain=destination.name == "stdout") as listener:
            pipeline = Pipeline(
                source,
                destination,
                store,
                mode=task.mode,
                settings=settings,
                spark_settings=spark_settings,
                listener=listener,
                id=task.id,
                log=log,
                slot=task.slot,
                capture=task.capture,
            )
            listener.watch(pipeline)
            with graceful_stop(pipeline.shutdown, listener.notice):
                summary = pipeline.run(task.until)
    except CopyFailedError as error:
        if error.summary is None:
            raise
        show_summary(error.summary)
        return 1
    finally:
        stop_session()
        store.close()
    if summary.tables:
        show_summary(summary)
    console.print(
        f"[bold]{summary.changes:,} changes[/] in {duration(summary.seconds)}; state and log are in {task.state}"
    )
    return 1 if summary.failed else 0


@contextmanager
def graceful_stop(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for an end, the second one ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, _frame: object) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        say("stopping; once more to stop at once")
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
