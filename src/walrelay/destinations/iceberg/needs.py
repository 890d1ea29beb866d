"""What Iceberg needs of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from walrelay.destinations.capabilities import SparkNeeds

CATALOG = "walrelay"
"""What Spark calls the catalog; one on SQLite also keeps its tables under this name."""
_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def address(path: Path) -> str:
    """As Iceberg writes it down: nothing in it is escaped, since readers take it as it stands."""
    return f"file://{path}"


def embedded_catalog(lake: Path) -> dict[str, str]:
    """A catalog in a file of the lake, which any reader of Iceberg that knows SQL catalogs opens."""
    return {
        "type": "jdbc",
        # Another process that writes to the file is waited for.
        "uri": f"jdbc:sqlite:{lake / 'catalog.db'}?busy_timeout=60000",
        "jdbc.schema-version": "V1",
        "warehouse": address(lake),
    }


def needs_of(catalog: Mapping[str, str]) -> SparkNeeds:
    prefix = f"spark.sql.catalog.{CATALOG}"
    # What we commit beside Spark's statements must be seen by the next one.
    settings = {"cache-enabled": "false", **catalog}
    packages = (_RUNTIME, *([_SQLITE] if "sqlite" in catalog.get("uri", "") else []))
    return SparkNeeds(
        packages=packages,
        version="4.1",
        extensions=(_EXTENSIONS,),
        settings={
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{name}": value for name, value in settings.items()},
        },
    )
