"""`walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from walrelay.capture.capture import Until
from walrelay.cli.live import live_display
from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.stopping import Stop, graceful_stop
from walrelay.cli.summary import show_summary, show_treated
from walrelay.config.observability import Observability
from walrelay.config.settings import CaptureSettings, CopySettings
from walrelay.control.stores import log_of, open_store
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError, WalrelayError
from walrelay.pipeline import Mode, Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import stop_session
from walrelay.telemetry.observe import Observer, observing


@dataclass(frozen=True)
class LiveTask:
    """What a pipeline that runs on needs besides source and destination."""

    mode: Mode
    id: str
    state: Path
    store: str | None
    log: str | None
    slot: str | None
    until: Until | None
    capture: CaptureSettings
    migrate_source: bool = False
    begin_anew: bool = False
    follow: bool = False


def run_live(
    source: PostgresSource,
    destination: Destination,
    settings: CopySettings,
    task: LiveTask,
    spark_settings: Mapping[str, str],
    observed: Observability,
) -> int:
    """The exit code: 0 when it ended as asked, caught up or stopped by a signal."""
    with _observing(task.id, observed) as observer:
        return _run_live(source, destination, settings, task, spark_settings, observer)


def _run_live(
    source: PostgresSource,
    destination: Destination,
    settings: CopySettings,
    task: LiveTask,
    spark_settings: Mapping[str, str],
    observer: Observer,
) -> int:
    console = stderr_console()
    log = task.log or log_of(task.state)
    task.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(task.state, task.store, task.id)
    try:
        with live_display(console, plain=destination.name == "stdout", silent=observer.is_logged) as shown:
            listener = observer.listener(shown)
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
                migrate_source=task.migrate_source,
                begin_anew=task.begin_anew,
                follow=task.follow,
            )
            shown.watch(pipeline)
            with (
                graceful_stop(pipeline.shutdown, listener.notice),
                _own_session(),
                observer.watching(pipeline),
            ):
                summary = observer.ended(pipeline.run(task.until))
    except CopyFailedError as error:
        if error.summary is None or observer.is_logged:
            raise
        show_summary(error.summary)
        return 1
    finally:
        store.close()
    if observer.is_logged:
        return 1 if summary.failed else 0
    if summary.tables:
        show_summary(summary)
    else:
        show_treated(summary)
    console.print(
        f"[bold]{summary.changes:,} changes[/] in {duration(summary.seconds)}; state and log are in {task.state}"
    )
    return 1 if summary.failed else 0


@contextmanager
def _observing(pipeline: str, observed: Observability) -> Iterator[Observer]:
    """What the log has said of an error is not said again in other words."""
    observer: Observer | None = None
    try:
        with observing(pipeline, observed) as observer:
            yield observer
    except WalrelayError as error:
        if observer is None or not observer.is_logged:
            raise
        raise typer.Exit(1) from error


@contextmanager
def _own_session() -> Iterator[None]:
    """Spark is the command's own: it ends before the command does."""
    try:
        yield
    finally:
        stop_session()


def run_copy(
    source: PostgresSource,
    destination: Destination,
    mode: str,
    settings: CopySettings,
    spark_settings: Mapping[str, str],
    observed: Observability,
) -> int:
    """The exit code: 0 when all rows are durable; the shell's for a signal that stopped it."""
    with _observing(source.publication or "walrelay", observed) as observer:
        return _run_copy(source, destination, mode, settings, spark_settings, observer)


def _run_copy(
    source: PostgresSource,
    destination: Destination,
    mode: str,
    settings: CopySettings,
    spark_settings: Mapping[str, str],
    observer: Observer,
) -> int:
    stop = Stop()
    try:
        # On a terminal a board that moves and rows that scroll do not go together.
        with progress_display(plain=destination.name == "stdout", silent=observer.is_logged) as shown:
            listener = observer.listener(shown)
            pipeline = Pipeline(
                source,
                destination,
                mode=cast(Mode, mode),
                settings=settings,
                spark_settings=spark_settings,
                listener=listener,
            )
            with (
                graceful_stop(pipeline.shutdown, listener.notice) as stop,
                _own_session(),
                observer.watching(pipeline),
            ):
                summary = observer.ended(pipeline.run())
    except CopyFailedError as error:
        if error.summary is None or (observer.is_logged and stop.signal is None):
            raise
        summary = error.summary
    if observer.is_logged:
        return stop.exit_code or (1 if summary.failed else 0)
    if stop.signal is not None:
        stderr_console().print("stopped; no table is half-written")
        return stop.exit_code
    show_summary(summary)
    return 1 if summary.failed else 0
