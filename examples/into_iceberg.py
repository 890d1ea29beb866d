"""Tables of Postgres as Iceberg tables. Usage: into_iceberg.py POSTGRES_URL PUBLICATION DIRECTORY"""

import sys

from walrelay import IcebergDestination, Pipeline, PostgresSource, SqliteStore

url, publication, directory = sys.argv[1:]
source = PostgresSource(url, publication=publication)
lake = IcebergDestination(f"{directory}/lake")
store = SqliteStore(f"{directory}/state.db", "into_iceberg")
pipeline = Pipeline(source, lake, store, mode="both", log=f"{directory}/log", slot="into_iceberg")
summary = pipeline.run(until="caught-up")  # without `until` it keeps them current until it is stopped
print(f"{summary.rows} rows copied, {summary.changes} changes")
