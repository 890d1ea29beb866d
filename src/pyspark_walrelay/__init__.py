"""Found by Spark itself: packages named `pyspark_…` are searched for data sources, so `format("walrelay")` just works."""

from walrelay.spark.datasource import WalrelayDataSource as DefaultSource

__all__ = ["DefaultSource"]
