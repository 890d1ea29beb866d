"""A pipeline out of its configuration: the same way for `run` and `replicate`. What is refused here has made nothing
yet, neither state nor slot nor table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pydantic_settings import BaseSettings

from walrelay.config.loading import Loaded
from walrelay.config.settings import CaptureSettings, CopySettings, capture_settings, copy_settings
from walrelay.control.config_check import check, source_of, target_path
from walrelay.control.stores import log_of, open_store
from walrelay.destinations.base import Destination
from walrelay.destinations.urls import destination_from_url
from walrelay.pipeline import Pipeline
from walrelay.postgres.catalog import check_publication
from walrelay.postgres.connection import connect
from walrelay.workers.report import Listener

COPY_ID: Final = "walrelay"
"""Of a pipeline that copies once, and remembers nothing under its name."""
S = TypeVar("S", bound=BaseSettings)


@contextmanager
def composed(loaded: Loaded, destination: Destination, listener: Listener) -> Iterator[Pipeline]:
    """The pipeline that the configuration describes, with its store open. What is not there yet is made, but nothing
    before the source has been asked."""
    config = loaded.config
    check(loaded)
    pipeline = _pipeline(loaded, destination, listener)
    if config.pipeline.mode == "copy":
        yield pipeline
        return
    if not config.state.exists():
        _ask_source(loaded)
    url = None if config.store.url is None else config.store.url.get_secret_value()
    if url is None:
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(config.state, url, config.id)
    try:
        pipeline.store = store
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield pipeline
    finally:
        store.close()


def destination_of(loaded: Loaded) -> Destination:
    """The configuration's destination; nothing is opened yet."""
    target = loaded.config.target
    with loaded.blaming(*target_path(loaded)):
        return destination_from_url(target.url.get_secret_value(), target.lane)


def _ask_source(loaded: Loaded) -> None:
    """Whether the source lets us in and has the publication, before anything is made for it. Of its tables the run
    asks, which can be told to stop while it waits for a lock on one."""
    source = source_of(loaded)
    with loaded.blaming("source", "url"):
        connection = connect(source, application="walrelay check")
    with connection, loaded.blaming("source", "publication"):
        check_publication(connection, source.publication)


def _pipeline(loaded: Loaded, destination: Destination, listener: Listener) -> Pipeline:
    config = loaded.config
    mode = config.pipeline.mode
    return Pipeline(
        source_of(loaded),
        destination,
        mode=mode,
        settings=copy_settings(**_said_of(CopySettings, config.pipeline)),
        spark_settings=config.spark,
        listener=listener,
        id=(config.pipeline.id or COPY_ID) if mode == "copy" else config.id,
        log=None if mode == "copy" else config.log.location or log_of(config.state),
        slot=config.source.slot,
        capture=capture_settings(**_said_of(CaptureSettings, config.log)),
        migrate_source=config.source.migrate_source,
        begin_anew=config.pipeline.begin_anew,
        follow=config.log.follow,
        tables={pattern: keys.options() for pattern, keys in config.tables.items()},
    )


def _said_of(kind: type[S], section: S) -> dict[str, Any]:
    """What was said of the settings; what was not is decided further down, sometimes by other settings."""
    return {name: getattr(section, name) for name in section.model_fields_set & kind.model_fields.keys()}
