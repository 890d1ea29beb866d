"""Tables of Postgres in ClickHouse. Usage: into_clickhouse.py POSTGRES_URL PUBLICATION CLICKHOUSE_URL DIRECTORY"""

import sys

from walrelay import ClickHouseDestination, Pipeline, PostgresSource, SqliteStore

url, publication, clickhouse, directory = sys.argv[1:]
source = PostgresSource(url, publication=publication)
destination = ClickHouseDestination(clickhouse)  # clickhouse://user:password@host:8123/database
store = SqliteStore(f"{directory}/state.db", "into_clickhouse")
pipeline = Pipeline(source, destination, store, mode="both", log=f"{directory}/log", slot="into_clickhouse")
summary = pipeline.run(until="caught-up")  # without `until` it keeps them current until it is stopped
print(f"{summary.rows} rows copied, {summary.changes} changes")
