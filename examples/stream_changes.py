"""Count the changes of each table in a change log, with Spark. Usage: stream_changes.py LOG [SPARK_MASTER]

`walrelay capture` writes the log; this reads it as a stream up to its end. Drop `availableNow` to go on for ever.
"""

import sys

from pyspark.sql import SparkSession

log, master = sys.argv[1], (sys.argv[2:] or ["local[*]"])[0]
spark = SparkSession.builder.master(master).config("spark.sql.shuffle.partitions", 2).getOrCreate()
changes = spark.readStream.format("walrelay").option("log", log).load()
counts = changes.groupBy("table", "op").count()
query = counts.writeStream.outputMode("complete").format("memory").queryName("counts").trigger(availableNow=True)
query.start().awaitTermination()
for row in spark.table("counts").orderBy("table", "op").collect():
    print(row.table, row.op, row["count"])
spark.stop()
