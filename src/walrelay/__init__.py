"""walrelay: Postgres replication on Spark."""

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
