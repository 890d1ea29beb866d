"""Tables of Postgres in BigQuery. Usage: into_bigquery.py POSTGRES_URL PUBLICATION BIGQUERY_URL DIRECTORY

The third is bigquery://project/dataset
"""

import sys

from walrelay import BigQueryDestination, Pipeline, PostgresSource, SqliteStore

url, publication, warehouse, directory = sys.argv[1:]
source = PostgresSource(url, publication=publication)
store = SqliteStore(f"{directory}/state.db", "into_bigquery")
destination = BigQueryDestination.from_url(warehouse)
pipeline = Pipeline(source, destination, store, mode="both", log=f"{directory}/log", slot="into_bigquery")
summary = pipeline.run(until="caught-up")  # without `until` it keeps them current until it is stopped
print(f"{summary.rows} rows copied, {summary.changes} changes")
