"""Found by Spark itself, which looks for data sources in packages named `pyspark_…`: `format("walrelay")` works."""

from walrelay.spark.datasource import WalrelayDataSource as DefaultSource

__all__ = ["DefaultSource"]
