"""Whether a configuration is one that a pipeline can start with; no engine is loaded, and nothing is made."""

from __future__ import annotations

from walrelay.config.loading import Loaded
from walrelay.destinations.urls import check_scheme
from walrelay.postgres.source import PostgresSource


def check(loaded: Loaded) -> None:
    """What can be said of the URLs without asking whom they name. Raises `ConfigError`, with the key at fault."""
    source_of(loaded)
    store = loaded.config.store.url
    if store is not None:
        with loaded.blaming("store", "url"):
            PostgresSource(store.get_secret_value())
    with loaded.blaming(*target_path(loaded)):
        check_scheme(loaded.config.target.url.get_secret_value())


def source_of(loaded: Loaded) -> PostgresSource:
    """The configuration's source; nothing is opened yet."""
    source = loaded.config.source
    with loaded.blaming("source", "url"):
        return PostgresSource(source.url.get_secret_value(), publication=source.publication)


def target_path(loaded: Loaded) -> tuple[str | int, ...]:
    """The key that says where the tables are brought."""
    return ("destination", "url") if loaded.config.destination is not None else ("destinations", 0, "url")
