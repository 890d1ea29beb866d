"""Puts together what watches a run: log, counters, the look, the endpoint and the hooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from walrelay.config.observability import Observability
from walrelay.model.notice import Notice
from walrelay.pipeline import Pipeline
from walrelay.telemetry.events import ended
from walrelay.telemetry.hooks import Messenger
from walrelay.telemetry.listeners import Counting, Several
from walrelay.telemetry.log import LogListener, logging_to
from walrelay.telemetry.look import Look, Looker
from walrelay.telemetry.server import serving
from walrelay.telemetry.watch import Watch
from walrelay.workers.report import Listener, RunSummary


class Observer:
    """Of one run. Give the pipeline `listener(…)`, run it `watching` it, and say with `ended` what came of it."""

    def __init__(self, settings: Observability, is_logged: bool) -> None:
        self._settings = settings
        self._counting = Counting()
        self._log = [LogListener()] if is_logged else []
        self.is_logged = is_logged
        """Whether stderr belongs to the log, so that nothing else is to be written there."""
        self._messenger = Messenger(settings.hooks)
        self._watch: Watch | None = None
        self._summary: RunSummary | None = None
        self.has_told = False
        """Whether the log says how the run ended."""
        self.address: tuple[str, int] | None = None
        """Where it is served, once it is."""

    def listener(self, shown: Listener) -> Listener:
        """For the pipeline: whoever shows the run, the log, and who counts."""
        return Several(shown, *self._log, self._counting)

    @contextmanager
    def watching(self, pipeline: Pipeline) -> Iterator[None]:
        """Look at this one meanwhile; when it has ended, tell how."""
        limits = self._settings.metrics
        watch = Watch(
            Looker(pipeline, self._counting, limits, self._messenger.counts),
            self._messenger,
            limits.every.total_seconds(),
        )
        self._watch = watch
        self._messenger.start()
        watch.start()
        if self.address is not None:
            pipeline.listener.notice(served_at(self.address))
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self.has_told = self.is_logged
            watch.stop()
            watch.tell(ended(pipeline.id, time.time(), self._summary, failure))
            self._messenger.stop()

    def ended(self, summary: RunSummary) -> RunSummary:
        """The run ended with this; one that failed raises instead."""
        self._summary = summary
        return summary

    def latest(self) -> Look | None:
        return self._watch.latest() if self._watch is not None else None


@contextmanager
def observing(pipeline_id: str, settings: Observability, stream: TextIO | None = None) -> Iterator[Observer]:
    """Everything that is wanted, until the end of the block; what cannot be had, such as a port that is taken, is
    refused at once. `stream` is where the log goes, if not to stderr."""
    stream = stream if stream is not None else sys.stderr
    with ExitStack() as stack:
        wanted = settings.logging
        # On a terminal `auto` is the live view.
        is_logged = wanted is not None and not (wanted.format == "auto" and stream.isatty())
        if wanted is not None and is_logged:
            stack.enter_context(logging_to(stream, wanted.format, wanted.level, pipeline_id))
        observer = Observer(settings, is_logged)
        metrics = settings.metrics
        if metrics.port is not None:
            observer.address = stack.enter_context(serving(metrics.host, metrics.port, observer.latest))
        yield observer


def served_at(address: tuple[str, int]) -> Notice:
    """Where metrics are, for people and the log."""
    host, port = address
    where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return Notice("metrics are served", f"metrics, health and readiness at {where}", address=where)
