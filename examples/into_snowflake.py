"""Tables of Postgres in Snowflake. Usage: into_snowflake.py POSTGRES_URL PUBLICATION SNOWFLAKE_URL DIRECTORY

The third is snowflake://user:password@account/database/schema?warehouse=…
"""

import sys

from walrelay import Pipeline, PostgresSource, SnowflakeDestination, SqliteStore

url, publication, warehouse, directory = sys.argv[1:]
source = PostgresSource(url, publication=publication)
store = SqliteStore(f"{directory}/state.db", "into_snowflake")
destination = SnowflakeDestination.from_url(warehouse)
pipeline = Pipeline(source, destination, store, mode="both", log=f"{directory}/log", slot="into_snowflake")
summary = pipeline.run(until="caught-up")  # without `until` it keeps them current until it is stopped
print(f"{summary.rows} rows copied, {summary.changes} changes")
