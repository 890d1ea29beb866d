"""What a destination is given of the changes: a range of the log that ends on a commit, and ways to look at it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from walrelay.decode.base import TEXT, Tally
from walrelay.decode.json_text import json_objects
from walrelay.decode.retarget import retarget_struct
from walrelay.log.manifest import DataFile, Entry
from walrelay.log.reader import LogReader, TableBatch
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import SpecialValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class EventBatch:
    """All transactions that end after `after` and up to `to`: a consistent cut across all tables.

    The same range always holds the same changes, so a batch can be taken again. Files may be merged by compaction while
    a batch is looked at; every view here copes with that.
    """

    log: LogReader = field(repr=False)
    after: Lsn
    to: Lsn
    location: str = field(default="", repr=False)
    """The log's address, for readers outside of this process."""
    spark: SparkSession | None = field(default=None, repr=False, compare=False)

    def entries(self) -> list[Entry]:
        """The segments; the first and the last may hold more than this batch."""
        return self.log.entries(self.after, self.to)

    def files(self) -> list[tuple[SchemaVersion, DataFile]]:
        """The data files with their tables' shapes, in order."""
        return [
            (self.log.version(file.table, file.version), file)
            for entry in self.entries()
            for file in entry.files
            if file.table is not None
        ]

    def batches(self) -> Iterator[TableBatch]:
        """Arrow, by table."""
        return self.log.batches(self.after, self.to)

    def changes(self) -> Iterator[Change]:
        """Single changes in commit order, all tables merged: for simple destinations; slow by nature."""
        return self.log.changes(self.after, self.to)

    def json_lines(self, special_values: SpecialValues = "null") -> Iterator[str]:
        """Each change as a line of JSON, in commit order."""
        return json_lines(self.log, self.after, self.to, special_values=special_values)

    def dataframe(self, table: str | None = None) -> DataFrame:
        """The changes as a Spark DataFrame, typed when `table` names one."""
        assert self.spark is not None, "this destination was given no Spark session"
        reader = self.spark.read.format("walrelay").option("log", self.location)
        reader = reader.option("from", str(self.after)).option("to", str(self.to))
        return (reader.option("table", table) if table is not None else reader).load()


def json_lines(
    log: LogReader, after: Lsn | None, to: Lsn | None, tables: set[int] | None = None, *, special_values: SpecialValues
) -> Iterator[str]:
    """Changes as lines of JSON in commit order; values as the stdout destination prints them."""
    for files in log.segments(after, to, tables):
        streams = [_keyed_lines(batches, special_values) for batches in files]
        for _, _, line in heapq.merge(*streams):
            yield line


def _keyed_lines(batches: Iterator[TableBatch], special_values: SpecialValues) -> Iterator[tuple[int, int, str]]:
    for one in batches:
        batch = one.batch
        lines = _lines(one, special_values).to_pylist()
        yield from zip(batch.column("commit_lsn").to_pylist(), batch.column("ordinal").to_pylist(), lines, strict=True)


def _lines(one: TableBatch, special_values: SpecialValues) -> pa.Array:
    """A JSON object per change, built column by column."""
    batch, schema = one.batch, one.version.schema
    count = batch.num_rows
    fields: dict[str, pa.Array] = {
        "table": pa.repeat(str(schema.name), count),
        "op": batch.column("op"),
        "commit_lsn": _lsn_text(batch.column("commit_lsn")),
        "ordinal": batch.column("ordinal"),
        "xid": batch.column("xid"),
        "commit_time": batch.column("commit_time").cast(pa.string()),
        "schema_version": batch.column("schema_version"),
    }
    for name in ("row", "old"):
        image = batch.column(name)
        if image.null_count < count or name == "row":
            fields[name] = retarget_struct(image, schema, Tally(TEXT, special_values))
    for name in ("old_kind", "unchanged"):
        if batch.column(name).null_count < count:
            fields[name] = batch.column(name)
    return json_objects(pa.StructArray.from_arrays(list(fields.values()), list(fields)))


def _lsn_text(lsns: pa.Array) -> pa.Array:
    """As Postgres prints them. Few differ within a batch."""
    encoded = lsns.dictionary_encode()
    words = pa.array([str(Lsn(lsn)) for lsn in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, words).cast(pa.string())
