"""A Postgres table in any Spark job. Usage: read_into_spark.py POSTGRES_URL TABLE"""

import sys

from pyspark.sql import SparkSession

url, table = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").getOrCreate()
frame = spark.read.format("walrelay").option("url", url).option("table", table).load()
frame.printSchema()
print(frame.count(), "rows in", frame.rdd.getNumPartitions(), "ranges")
spark.stop()
