"""What Delta needs of Spark."""

from __future__ import annotations

from walrelay.destinations.capabilities import SparkNeeds

NEEDS = SparkNeeds(
    packages=("io.delta:delta-spark_4.1_2.13:4.4.0",),
    version="4.1",
    extensions=("io.delta.sql.DeltaSparkSessionExtension",),
    settings={
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Of a table's log; the default is made for clusters.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
)
