"""Iceberg's own procedures that make few files of many and forget what nobody reads any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from walrelay.changes.spark_values import literal
from walrelay.destinations.iceberg.needs import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP_SNAPSHOTS = timedelta(days=5)
"""Iceberg's own default. So long may a query go on that reads an old one."""
KEEP_LAST = 20
"""However old they are: of a table that seldom changes somebody may still want to see what it was."""


def maintain(spark: SparkSession, table: str, keep_snapshots: timedelta, keep_last: int = KEEP_LAST) -> None:
    """In a session whose time zone is UTC. `table` is the name with its namespace, quoted. A snapshot that was staged
    and never published belongs to no branch: it goes when it is old enough, with its files."""
    before = (datetime.now(UTC) - keep_snapshots).strftime("%Y-%m-%d %H:%M:%S.%f")
    # Deletes of files that are gone would be read with every other one.
    _call(spark, "rewrite_data_files", table, "options => map('remove-dangling-deletes', 'true')")
    _call(spark, "rewrite_manifests", table)
    _call(spark, "expire_snapshots", table, f"older_than => TIMESTAMP '{before}'", f"retain_last => {keep_last}")


def _call(spark: SparkSession, procedure: str, table: str, *arguments: str) -> None:
    spark.sql(f"CALL {CATALOG}.system.{procedure}({', '.join([f'table => {literal(table)}', *arguments])})")
