"""`walrelay replicate`: run a pipeline with progress on stderr, and end with a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from walrelay.cli.progress import progress_display, stderr_console
from walrelay.cli.summary import show_summary
from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.errors import CopyFailedError
from walrelay.pipeline import Mode, Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.spark.session import stop_session

INTERRUPTED = 130


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
