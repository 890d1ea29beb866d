"""The tables as the code uses them. `migrations/` makes them; a test holds the two together.

LSNs are text as Postgres prints them: they do not fit every database's integers. They are compared in Python.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

SCHEMA: Final = "walrelay"
"""Where the tables are; databases without schemas have it translated away."""

metadata: Final = MetaData(schema=SCHEMA)


def _pipeline_id() -> Column[str]:
    return Column("pipeline_id", Text, primary_key=True)


def _table_id() -> Column[int]:
    return Column("table_id", BigInteger, primary_key=True, autoincrement=False)


store_migrations: Final = Table(
    "store_migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied_at", Text, nullable=False),
)

pipelines: Final = Table(
    "pipelines",
    metadata,
    _pipeline_id(),
    Column("created_at", Text, nullable=False),
)

table_phases: Final = Table(
    "table_phases",
    metadata,
    _pipeline_id(),
    _table_id(),
    # In the table's history, from 0; the greatest is the present phase.
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("phase", Text, nullable=False),
)

worker_progress: Final = Table(
    "worker_progress",
    metadata,
    _pipeline_id(),
    Column("worker", Text, primary_key=True),
    Column("slot", Text, nullable=False),
    Column("system_identifier", Text, nullable=False),
    Column("timeline", BigInteger, nullable=False),
    Column("created_lsn", Text, nullable=False),
    Column("lsn", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
)

destination_tables: Final = Table(
    "destination_tables",
    metadata,
    _pipeline_id(),
    _table_id(),
    Column("destination_table", Text, nullable=False),
    Column("snapshot_lsn", Text, nullable=False),
    Column("previous_snapshot_lsn", Text),
    Column("status", Text, nullable=False),
    Column("replication_mask", Text, nullable=False),
)

table_mappings: Final = Table(
    "table_mappings",
    metadata,
    _pipeline_id(),
    _table_id(),
    Column("destination_table", Text, nullable=False),
)

table_schemas: Final = Table(
    "table_schemas",
    metadata,
    _pipeline_id(),
    _table_id(),
    Column("snapshot_lsn", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

facts: Final = Table(
    "facts",
    metadata,
    _pipeline_id(),
    _table_id(),
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
