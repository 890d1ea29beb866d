"""walrelay: Postgres replication on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walrelay.capture.capture import Capture
    from walrelay.changes.batch import EventBatch
    from walrelay.config.settings import CaptureSettings, CopySettings
    from walrelay.destinations.bigquery.destination import BigQueryDestination
    from walrelay.destinations.clickhouse.destination import ClickHouseDestination
    from walrelay.destinations.delta.destination import DeltaDestination
    from walrelay.destinations.duckdb.destination import DuckDBDestination
    from walrelay.destinations.iceberg.destination import IcebergDestination
    from walrelay.destinations.memory import MemoryDestination
    from walrelay.destinations.null import NullDestination
    from walrelay.destinations.postgres.destination import PostgresDestination
    from walrelay.destinations.snowflake.destination import SnowflakeDestination
    from walrelay.destinations.stdout import StdoutDestination
    from walrelay.errors import WalrelayError
    from walrelay.log.reader import LogReader
    from walrelay.model.table_options import TableOptions
    from walrelay.pipeline import Pipeline
    from walrelay.postgres.source import PostgresSource
    from walrelay.shaping.function_plan import Transform
    from walrelay.stores.memory import MemoryStore
    from walrelay.stores.postgres import PostgresStore
    from walrelay.stores.sqlite import SqliteStore

__version__ = "0.2.0"

# Loaded when first asked for: Spark, Arrow and the decoder take a second that `walrelay --help` need not wait for.
_HOME = {
    "BigQueryDestination": "walrelay.destinations.bigquery.destination",
    "Capture": "walrelay.capture.capture",
    "CaptureSettings": "walrelay.config.settings",
    "ClickHouseDestination": "walrelay.destinations.clickhouse.destination",
    "CopySettings": "walrelay.config.settings",
    "DeltaDestination": "walrelay.destinations.delta.destination",
    "DuckDBDestination": "walrelay.destinations.duckdb.destination",
    "EventBatch": "walrelay.changes.batch",
    "IcebergDestination": "walrelay.destinations.iceberg.destination",
    "LogReader": "walrelay.log.reader",
    "MemoryDestination": "walrelay.destinations.memory",
    "MemoryStore": "walrelay.stores.memory",
    "NullDestination": "walrelay.destinations.null",
    "Pipeline": "walrelay.pipeline",
    "PostgresDestination": "walrelay.destinations.postgres.destination",
    "PostgresSource": "walrelay.postgres.source",
    "PostgresStore": "walrelay.stores.postgres",
    "SnowflakeDestination": "walrelay.destinations.snowflake.destination",
    "SqliteStore": "walrelay.stores.sqlite",
    "StdoutDestination": "walrelay.destinations.stdout",
    "TableOptions": "walrelay.model.table_options",
    "Transform": "walrelay.shaping.function_plan",
    "WalrelayError": "walrelay.errors",
}

__all__ = [
    "BigQueryDestination",
    "Capture",
    "CaptureSettings",
    "ClickHouseDestination",
    "CopySettings",
    "DeltaDestination",
    "DuckDBDestination",
    "EventBatch",
    "IcebergDestination",
    "LogReader",
    "MemoryDestination",
    "MemoryStore",
    "NullDestination",
    "Pipeline",
    "PostgresDestination",
    "PostgresSource",
    "PostgresStore",
    "SnowflakeDestination",
    "SqliteStore",
    "StdoutDestination",
    "TableOptions",
    "Transform",
    "WalrelayError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
