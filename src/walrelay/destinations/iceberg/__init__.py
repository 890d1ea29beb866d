"""Tables in Apache Iceberg, written by Spark."""
