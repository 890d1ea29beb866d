"""`walrelay run` and `walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.capture.capture import Until
from walrelay.cli.live import live_display
from walrelay.cli.progress import duration, progress_display, stderr_console
from walrelay.cli.stopping import Stop, graceful_stop
from walrelay.cli.summary import show_summary, show_treated
from walrelay.config.loading import Loaded
from walrelay.control.composition import composed, destination_of
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError
from walrelay.spark.session import stop_session


def run_pipeline(loaded: Loaded, until: Until | None) -> int:
    """The exit code."""
    destination = destination_of(loaded)
    return (
        _run_copy(loaded, destination)
        if loaded.config.pipeline.mode == "copy"
        else _run_live(loaded, destination, until)
    )


def _run_live(loaded: Loaded, destination: Destination, until: Until | None) -> int:
    """The exit code: 0 when it ended as asked, caught up or stopped by a signal."""
    console = stderr_console()
    try:
        with (
            live_display(console, plain=destination.name == "stdout") as listener,
            composed(loaded, destination, listener) as pipeline,
        ):
            listener.watch(pipeline)
            with graceful_stop(pipeline.shutdown, listener.notice), _own_session():
                summary = pipeline.run(until)
    except CopyFailedError as error:
        if error.summary is None:
            raise
        show_summary(error.summary)
        return 1
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


def _run_copy(loaded: Loaded, destination: Destination) -> int:
    """The exit code: 0 when all rows are durable; the shell's for a signal that stopped it."""
    stop = Stop()
    try:
        # On a terminal a board that moves and rows that scroll do not go together.
        with (
            progress_display(plain=destination.name == "stdout") as listener,
            composed(loaded, destination, listener) as pipeline,
            graceful_stop(pipeline.shutdown, listener.notice) as stop,
            _own_session(),
        ):
            summary = pipeline.run()
    except CopyFailedError as error:
        if error.summary is None:
            raise
        summary = error.summary
    if stop.signal is not None:
        stderr_console().print("stopped; no table is half-written")
        return stop.exit_code
    show_summary(summary)
    return 1 if summary.failed else 0
