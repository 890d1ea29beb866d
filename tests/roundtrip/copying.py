"""A table's copy as a run makes it, with the code of a Spark task and without Spark."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from walrelay.changes.rows import TableRows
from walrelay.config.choices import UnknownTypes
from walrelay.config.settings import MiB, copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.model.names import TableName
from walrelay.model.ranges import plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.snapshot import Snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_task import CopyTask, land_range


@dataclass(frozen=True)
class Copied:
    """What was read of a table, and what had to be treated."""

    schema: TableSchema
    rows: int
    treated: dict[str, int]


def started(path: Path) -> DuckDBDestination:
    """A DuckDB file, ready to be written to."""
    destination = DuckDBDestination(path)
    destination.startup(DestinationContext("roundtrip", copy_settings()))
    return destination


def copy_table(
    source: PostgresSource,
    snapshot: Snapshot,
    table: str,
    destination: DuckDBDestination,
    *,
    special_values: SpecialValues = "null",
    unknown_types: UnknownTypes = "bytes",
    chunk_bytes: int = 2 * MiB,
) -> Copied:
    """Copy one table under the snapshot; the same steps as `walrelay.workers.table_sync.copy_once`."""
    found = find_table(snapshot.connection, TableName.parse(table))
    schema = read_schema(snapshot.connection, found, unknown_types)
    directory = Path(f"{destination.path}.{schema.id}")
    directory.mkdir()
    task = CopyTask(
        source=source,
        schema=schema,
        snapshot=snapshot.name,
        target=destination.dialect.target,
        special_values=special_values,
        chunk_bytes=chunk_bytes,
        file_bytes=256 * MiB,
        application="walrelay roundtrip",
        directory=str(directory),
    )
    ranges = plan_ranges(schema, range_bytes=64 * MiB, max_ranges=1024, parallelism=1)
    results = [land_range(task, part) for part in ranges]
    files = tuple(file for result in results for file in result.files)
    rows = sum(result.rows for result in results)
    destination.write_table_rows(schema, TableRows(schema, files, task.target, rows, snapshot.lsn))
    shutil.rmtree(directory)
    treated = sum((Counter(result.treated) for result in results), Counter[str]())
    return Copied(schema, rows, dict(treated))
