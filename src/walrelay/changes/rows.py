"""What a destination is given of a copy: files that tasks have landed, and ways to look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.spark_dialect import columns_ddl
from walrelay.decode.base import Target
from walrelay.decode.plain_rows import plain_rows
from walrelay.decode.table import arrow_schema, bare_rows
from walrelay.model.lsn import Lsn
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A Parquet file that a task has written and closed."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """One table's landed copy; it may be empty. Look at it as files, Arrow, plain rows or a Spark DataFrame."""

    schema: TableSchema
    files: tuple[LandedFile, ...]
    target: Target
    rows_total: int
    snapshot_lsn: Lsn | None = None
    spark: SparkSession | None = field(default=None, repr=False, compare=False)
    relayed: bool = False
    """Whether tasks have passed the rows on already, as bytes (`destinations.relaying`): then there are no files."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return arrow_schema(self.schema, self.target)

    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in pieces of bounded size."""
        for file in self.files:
            with pq.ParquetFile(file.path) as parquet:
                for batch in parquet.iter_batches(batch_size=READ_ROWS):
                    yield batch if self.schema.columns else bare_rows(batch.num_rows)

    def arrow(self) -> pa.Table:
        """All rows at once: for destinations that know that they are few."""
        return pa.Table.from_batches(self.batches(), schema=self.arrow_schema)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain Python rows, for simple destinations; slow by nature."""
        for batch in self.batches():
            yield from plain_rows(batch)

    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame over the files. For destinations whose target is Spark."""
        assert self.spark is not None, "this destination was given no Spark session"
        return self.spark.read.schema(columns_ddl(self.schema.columns)).parquet(*self.paths())
