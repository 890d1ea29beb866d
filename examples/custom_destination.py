"""A destination of your own: a CSV file per table. Usage: custom_destination.py POSTGRES_URL PUBLICATION DIRECTORY"""

import sys
from pathlib import Path

import pyarrow.csv

from walrelay import Pipeline, PostgresSource
from walrelay.decode.base import TEXT
from walrelay.destinations.base import SimpleDestination, TableRows, WriteResult
from walrelay.model.schema import TableSchema


class CsvDestination(SimpleDestination):
    name = "csv"
    target = TEXT  # CSV is text, so let dates, times and uuids be decoded to what Postgres prints

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        unfinished = self.directory / f"{schema.name}.csv.new"
        with pyarrow.csv.CSVWriter(unfinished, rows.arrow_schema) as writer:
            for batch in rows.batches():
                writer.write_batch(batch)
        unfinished.rename(self.directory / f"{schema.name}.csv")  # readers see the old file or the whole new one
        return WriteResult(durable=True, rows=rows.rows_total)


if __name__ == "__main__":
    url, publication, directory = sys.argv[1:]
    summary = Pipeline(PostgresSource(url, publication=publication), CsvDestination(directory)).run()
    print(f"{summary.rows} rows in {len(summary.tables)} tables")
