"""`walrelay run` and `walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from walrelay.capture.capture import Until
from walrelay.cli.live import live_display
from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.stopping import Stop, graceful_stop
from walrelay.cli.summary import show_summary, show_treated
from walrelay.config.loading import Loaded
from walrelay.config.observability import Observability
from walrelay.control.composition import composed, destination_of
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError, WalrelayError
from walrelay.model.notice import Notice
from walrelay.pipeline import Pipeline
from walrelay.spark.session import stop_session
from walrelay.telemetry.observe import Observer, observing


def run_pipeline(loaded: Loaded, until: Until | None, *, logs: bool = False) -> int:
    """The exit code. `logs`: stderr is for the log, unless it is a terminal, also when nothing was said about one."""
    with _observing(loaded, logs) as observer:
        destination = destination_of(loaded)
        return (
            _run_copy(loaded, destination, observer)
            if loaded.config.pipeline.mode == "copy"
            else _run_live(loaded, destination, until, observer)
        )


@contextmanager
def _observing(loaded: Loaded, logs: bool) -> Iterator[Observer]:
    """What the log has said of an error is not said again in other words. What is refused before anything began, such
    as a wrong key, is left to who prints errors: the log begins with the run."""
    config = loaded.config
    logging = config.logging if logs or config.logging.model_fields_set else None
    observer: Observer | None = None
    try:
        with observing(config.id, Observability(config.metrics, logging, config.hooks)) as observer:
            yield observer
    except WalrelayError as error:
        if observer is None or not observer.has_told:
            raise
        raise typer.Exit(1) from error


def _run_live(loaded: Loaded, destination: Destination, until: Until | None, observer: Observer) -> int:
    """The exit code: 0 when it ended as asked, caught up or stopped by a signal."""
    console = stderr_console()
    try:
        with (
            live_display(console, plain=destination.name == "stdout", silent=observer.is_logged) as shown,
            composed(loaded, destination, observer.listener(shown)) as pipeline,
        ):
            _warn(loaded, pipeline)
            shown.watch(pipeline)
            with (
                graceful_stop(pipeline.shutdown, pipeline.listener.notice),
                _own_session(),
                observer.watching(pipeline),
            ):
                summary = observer.ended(pipeline.run(until))
    except CopyFailedError as error:
        if error.summary is None or observer.is_logged:
            raise
        show_summary(error.summary)
        return 1
    if observer.is_logged:
        return 1 if summary.failed else 0
    if summary.tables:
        show_summary(summary)
    else:
        show_treated(summary)
    console.print(
        f"[bold]{summary.changes:,} changes[/] in {duration(summary.seconds)};"
        f" state and log are in {loaded.config.state}"
    )
    return 1 if summary.failed else 0


@contextmanager
def _own_session() -> Iterator[None]:
    """Spark is the command's own: it ends before the command does."""
    try:
        yield
    finally:
        stop_session()


def _warn(loaded: Loaded, pipeline: Pipeline) -> None:
    for said in loaded.warnings():
        pipeline.listener.notice(Notice.warning("a variable may be misspelt", said, message=said))


def _run_copy(loaded: Loaded, destination: Destination, observer: Observer) -> int:
    """The exit code: 0 when all rows are durable; the shell's for a signal that stopped it."""
    stop = Stop()
    try:
        # On a terminal a board that moves and rows that scroll do not go together.
        with (
            progress_display(plain=destination.name == "stdout", silent=observer.is_logged) as shown,
            composed(loaded, destination, observer.listener(shown)) as pipeline,
        ):
            _warn(loaded, pipeline)
            with (
                graceful_stop(pipeline.shutdown, pipeline.listener.notice) as stop,
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
