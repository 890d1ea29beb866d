"""`verify` for a pipeline whose state is somewhere, running or not."""

from __future__ import annotations

from collections.abc import Callable, Collection

from walrelay.config.settings import CopySettings
from walrelay.control.stores import Place
from walrelay.destinations.base import Destination
from walrelay.postgres.source import PostgresSource
from walrelay.verify.report import TableResult, VerifyReport
from walrelay.verify.run import VerifyParts, verify


def verify_pipeline(
    source: PostgresSource,
    destination: Destination,
    settings: CopySettings,
    place: Place,
    *,
    tables: Collection[str] | None = None,
    repair: bool = False,
    finished: Callable[[TableResult], None] = lambda _: None,
) -> VerifyReport:
    """Compare source and destination of the pipeline. Raises when there is no such state, or nothing to compare."""
    with place.opened() as store:
        parts = VerifyParts(place.only_pipeline(), source, destination, store, place.location, settings)
        return verify(parts, tables, repair=repair, finished=finished)
