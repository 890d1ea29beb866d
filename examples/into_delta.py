"""Tables of Postgres as Delta tables. Usage: into_delta.py POSTGRES_URL PUBLICATION DIRECTORY"""

import sys

from walrelay import DeltaDestination, Pipeline, PostgresSource, SqliteStore

url, publication, directory = sys.argv[1:]
source = PostgresSource(url, publication=publication)
lake = DeltaDestination(f"{directory}/lake")
store = SqliteStore(f"{directory}/state.db", "into_delta")
pipeline = Pipeline(source, lake, store, mode="both", log=f"{directory}/log", slot="into_delta")
summary = pipeline.run(until="caught-up")  # without `until` it keeps them current until it is stopped
print(f"{summary.rows} rows copied, {summary.changes} changes")
