"""walrelay: Postgres replication on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walrelay.config.settings import CopySettings
    from walrelay.destinations.duckdb import DuckDBDestination
    from walrelay.destinations.memory import MemoryDestination
    from walrelay.destinations.null import NullDestination
    from walrelay.destinations.stdout import StdoutDestination
    from walrelay.errors import WalrelayError
    from walrelay.pipeline import Pipeline
    from walrelay.postgres.source import PostgresSource
    from walrelay.stores.memory import MemoryStore

__version__ = "0.1.0"

# Loaded when first asked for: Spark, Arrow and the decoder take a second that `walrelay --help` need not wait for.
_HOME = {
    "CopySettings": "walrelay.config.settings",
    "DuckDBDestination": "walrelay.destinations.duckdb",
    "MemoryDestination": "walrelay.destinations.memory",
    "MemoryStore": "walrelay.stores.memory",
    "NullDestination": "walrelay.destinations.null",
    "Pipeline": "walrelay.pipeline",
    "PostgresSource": "walrelay.postgres.source",
    "StdoutDestination": "walrelay.destinations.stdout",
    "WalrelayError": "walrelay.errors",
}

__all__ = [
    "CopySettings",
    "DuckDBDestination",
    "MemoryDestination",
    "MemoryStore",
    "NullDestination",
    "Pipeline",
    "PostgresSource",
    "StdoutDestination",
    "WalrelayError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
