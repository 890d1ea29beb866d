"""A Postgres table as a typed DataFrame, read in parallel under one snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from walrelay.changes.spark_dialect import SPARK, columns_ddl
from walrelay.changes.spark_failures import as_text
from walrelay.config.settings import CopySettings, copy_settings
from walrelay.decode.base import Tally
from walrelay.errors import ConfigError
from walrelay.model.names import TableName
from walrelay.model.ranges import CtidRange, plan_ranges
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.rights import naming_grants
from walrelay.postgres.snapshot import import_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_task import CopyTask, range_batches
from walrelay.spark.snapshot_holder import HeldSnapshot, hold_snapshot

OWN_OPTIONS = ("url", "table", "snapshot_idle_seconds")
_TUNABLE = ("special_values", "unknown_types", "range_bytes", "max_ranges", "chunk_bytes")


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, checked."""

    source: PostgresSource
    table: TableName
    settings: CopySettings
    idle_seconds: int

    @classmethod
    def of(cls, options: Any) -> ReadOptions:
        given = {key.lower(): value for key, value in dict(options).items()}
        unknown = sorted(set(given) - set(OWN_OPTIONS) - set(_TUNABLE))
        if unknown:
            known = ", ".join((*OWN_OPTIONS, *_TUNABLE))
            raise ConfigError(f"unknown option: {unknown[0]}", hint=f"format('walrelay') knows: {known}.")
        missing = [key for key in ("url", "table") if not given.get(key)]
        if missing:
            raise ConfigError(f"the option {missing[0]} is missing", hint=f'.option("{missing[0]}", "…")')
        try:
            table = TableName.parse(given["table"])
        except ValueError as error:
            raise ConfigError(str(error), hint='.option("table", "schema.table")') from error
        tuned = {key: given[key] for key in _TUNABLE if key in given}
        return cls(
            PostgresSource(given["url"]),
            table,
            copy_settings(**tuned),
            int(given.get("snapshot_idle_seconds", 600)),
        )


@dataclass
class RangePartition(InputPartition):
    """One range of the table and all that is needed to read it."""

    task: CopyTask
    part: CtidRange


def table_ddl(options: ReadOptions) -> str:
    """The columns of the table, as Spark DDL."""
    with connect(options.source) as connection:
        table = find_table(connection, options.table)
        return columns_ddl(read_schema(connection, table, options.settings.unknown_types).columns)


class TableReader(DataSourceReader):
    """Plans the ranges under a snapshot that outlives the planning, and reads them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with as_text(), naming_grants(options.source, options.table):
            held = hold_snapshot(options.source, options.table, idle_seconds=options.idle_seconds)
            try:
                return self._planned(held)
            except BaseException:
                held.release()
                raise

    def _planned(self, held: HeldSnapshot) -> list[InputPartition]:
        options = self._options
        with connect(options.source) as connection:
            import_snapshot(connection, held.name)
            table = find_table(connection, options.table)
            schema = read_schema(connection, table, options.settings.unknown_types)
        task = CopyTask(
            source=options.source,
            schema=schema,
            snapshot=held.name,
            target=SPARK,
            special_values=options.settings.special_values,
            chunk_bytes=options.settings.chunk_bytes,
            file_bytes=options.settings.file_bytes,
            application=held.application,
        )
        ranges = plan_ranges(
            schema,
            range_bytes=options.settings.range_bytes,
            max_ranges=options.settings.max_ranges,
            parallelism=os.cpu_count() or 1,
        )
        return [RangePartition(task, part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return  # Spark's own, when we have none: a partitioned table without partitions
        with as_text(), naming_grants(partition.task.source, partition.task.schema.name):
            tally = Tally(SPARK, partition.task.special_values)
            yield from range_batches(partition.task, partition.part, tally)
