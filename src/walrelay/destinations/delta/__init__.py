"""Tables in Delta Lake, written by Spark."""
