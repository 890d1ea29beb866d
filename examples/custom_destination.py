"""A destination of your own: a CSV file per table. Usage: custom_destination.py POSTGRES_URL PUBLICATION DIRECTORY"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from walrelay import Pipeline, PostgresSource
from walrelay.changes.dialect import plain_dialect
from walrelay.changes.rows import TableRows
from walrelay.decode.base import TEXT
from walrelay.destinations.base import SimpleDestination, WriteResult
from walrelay.model.schema import TableSchema


def flat(rows: pa.RecordBatch) -> pa.Table:
    """The rows without arrays and composites, which CSV cannot hold: they become JSON."""
    columns = [
        pa.array([None if one is None else json.dumps(one, default=str) for one in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, rows.schema.names)


class CsvDestination(SimpleDestination):
    name = "csv"
    dialect = plain_dialect(TEXT)  # CSV is text, so let dates, times and uuids be decoded to what Postgres prints

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        unfinished = self.directory / f"{schema.name}.csv.new"
        empty = pa.RecordBatch.from_pylist([], rows.arrow_schema)
        with pyarrow.csv.CSVWriter(unfinished, flat(empty).schema) as writer:
            for batch in rows.batches():
                writer.write_table(flat(batch))
        unfinished.rename(self.directory / f"{schema.name}.csv")  # readers see the old file or the whole new one
        return WriteResult(durable=True, rows=rows.rows_total)


if __name__ == "__main__":
    url, publication, directory = sys.argv[1:]
    summary = Pipeline(PostgresSource(url, publication=publication), CsvDestination(directory)).run()
    print(f"{summary.rows} rows in {len(summary.tables)} tables")
