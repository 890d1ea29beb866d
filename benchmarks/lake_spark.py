"""Spark for benchmarks that write lakes by hand: the same session for both formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from walrelay import IcebergDestination
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.destinations.delta.needs import NEEDS as DELTA
from walrelay.destinations.iceberg.needs import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ICEBERG_NAME = f"{CATALOG}.hand.bench"


def lake_needs(directory: Path) -> SparkNeeds:
    iceberg = IcebergDestination(directory / "unused").capabilities.spark
    return SparkNeeds(
        packages=DELTA.packages + iceberg.packages,
        extensions=DELTA.extensions + iceberg.extensions,
        settings={**DELTA.settings, **iceberg.settings},
    )


def iceberg_session(spark: SparkSession, lake: Path) -> SparkSession:
    """One in which the catalog is that of the lake."""
    session = spark.newSession()
    for name, value in IcebergDestination(lake).capabilities.spark.settings.items():
        session.conf.set(name, value)
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.hand")
    return session
