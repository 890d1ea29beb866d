"""Spark: the session, the copy as a job, the data source, failures; nothing below imports pyspark."""
