"""What a destination is given of the changes: a range of the log that ends on a commit, and ways to look at it."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import TEXT, Tally
from walrelay.decode.json_text import json_objects
from walrelay.decode.retarget import retarget_struct
from walrelay.errors import ConfigError
from walrelay.log.manifest import Entry
from walrelay.log.reader import LogReader, TableBatch
from walrelay.log.table_names import table_named, version_at
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import SpecialValues
from walrelay.model.visibility import VisibleTransactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TableRange:
    """What of a table belongs to a batch: transactions that end after `after`; with `unseen_by` (a snapshot as
    `pg_current_snapshot()` prints it) only those that the snapshot does not see (SEMANTICS 8)."""

    table: TableId
    after: Lsn
    unseen_by: str | None = None


@dataclass(frozen=True)
class EventBatch:
    """All transactions that end after `after` and up to `to`: a consistent cut across all tables.

    The same range always holds the same changes, so a batch can be taken again. Files may be merged by compaction while
    a batch is looked at: `batches`, `changes`, `json_lines` and `dataframe` cope with that; whoever reads the files of
    `tables` and finds one gone asks for `tables` again.
    """

    log: LogReader = field(repr=False)
    after: Lsn
    to: Lsn
    ranges: tuple[TableRange, ...] | None = None
    """The tables that take part, each from its own position; None is all of them, from `after`."""
    location: str = field(default="", repr=False)
    """The log's address, for readers outside of this process; without a secret."""
    format: Callable[[], str] = field(default=lambda: "walrelay", repr=False, compare=False)
    """By which Spark reads the log at `location`."""
    spark: Callable[[], SparkSession] | None = field(default=None, repr=False, compare=False)
    shapes: tuple[SchemaVersion, ...] = ()
    """Shapes that tables have at `to` and that no change has shown: they were altered, and not written to since."""

    def entries(self) -> list[Entry]:
        """The segments; the first and the last may hold more than this batch."""
        return self.log.entries(self.after, self.to)

    def tables(self) -> list[TableChanges]:
        """The tables that have changes here, as files."""
        entries = self.entries()
        ids = dict.fromkeys(file.table for entry in entries for file in entry.files if file.table is not None)
        chosen = {one.table: one for one in self._ranges(list(ids))}
        return [found for one in chosen.values() if (found := self._table(entries, one)) is not None]

    def _ranges(self, ids: list[TableId]) -> tuple[TableRange, ...]:
        return self.ranges if self.ranges is not None else tuple(TableRange(id_, self.after) for id_ in ids)

    def _table(self, entries: list[Entry], chosen: TableRange) -> TableChanges | None:
        files = tuple(
            (self.log.version(chosen.table, file.version), file)
            for entry in entries
            for file in entry.files
            if file.table == chosen.table and entry.end_lsn > chosen.after
        )
        if not files:
            return None
        return TableChanges(files[-1][0].schema, files, chosen.after, self.to, chosen.unseen_by, self)

    def of_table(self, table: TableId, after: Lsn, unseen_by: str | None) -> EventBatch:
        """What of the batch is this table's."""
        return replace(self, after=after, ranges=(TableRange(table, after, unseen_by),), shapes=())

    def batches(self) -> Iterator[TableBatch]:
        """Arrow, by table."""
        for segment in self._segments():
            for batches in segment:
                yield from batches

    def changes(self) -> Iterator[Change]:
        """Single changes in commit order, all tables merged: for simple destinations; slow by nature."""
        for segment in self._segments():
            streams = ((change for one in batches for change in one.changes()) for batches in segment)
            yield from heapq.merge(*streams, key=lambda change: (change.commit_lsn, change.ordinal))

    def json_lines(self, special_values: SpecialValues = "null") -> Iterator[str]:
        """Each change as a line of JSON, in commit order."""
        for segment in self._segments():
            yield from merged_lines(segment, special_values)

    def _segments(self) -> Iterator[list[Iterator[TableBatch]]]:
        """The batch's changes only, segment by segment."""
        if self.ranges is None:
            yield from self.log.segments(self.after, self.to)
            return
        ranges = {one.table: one for one in self.ranges}
        for segment in self.log.segments(self.after, self.to, set(ranges)):
            yield [chosen(batches, ranges) for batches in segment]

    def dataframe(self, table: str | TableId | None = None) -> DataFrame:
        """The batch's changes as a Spark DataFrame, read in parallel; typed when `table` names one, or is its id.

        A name means the table of this batch that has it at the batch's end, or else the last that had it within. The
        columns are those that hold at the batch's end. The same batch always gives the same rows and columns, whatever
        has become of the table since.
        """
        assert self.spark is not None, "this destination was given no Spark session"
        reader = self.spark().read.format(self.format()).option("log", self.location)
        reader = reader.option("from", str(self.after)).option("to", str(self.to))
        if self.ranges is not None:
            reader = reader.option("ranges", ranges_to_json(self.ranges))
        if table is not None:
            version = self._declared(table)
            reader = reader.option("table_id", version.schema.id).option("schema_version", version.version)
        return reader.load()

    def _declared(self, table: str | TableId) -> SchemaVersion:
        if isinstance(table, TableId):
            return version_at(self.log, table, self.to)
        try:
            name = TableName.parse(table)
        except ValueError as error:
            raise ConfigError(str(error), hint="Give schema.table, or the table's id.") from error
        among = None if self.ranges is None else {one.table for one in self.ranges}
        return table_named(self.log, name, self.after, self.to, among)


def json_lines(
    log: LogReader, after: Lsn | None, to: Lsn | None, tables: set[int] | None = None, *, special_values: SpecialValues
) -> Iterator[str]:
    """Changes as lines of JSON in commit order; values as the stdout destination prints them."""
    for segment in log.segments(after, to, tables):
        yield from merged_lines(segment, special_values)


def merged_lines(segment: list[Iterator[TableBatch]], special_values: SpecialValues) -> Iterator[str]:
    streams = [_keyed_lines(batches, special_values) for batches in segment]
    for _, _, line in heapq.merge(*streams):
        yield line


def ranges_to_json(ranges: tuple[TableRange, ...]) -> str:
    return json.dumps([asdict(one) for one in ranges])


def ranges_from_json(text: str) -> dict[TableId, TableRange]:
    found = (TableRange(one["table"], Lsn(one["after"]), one["unseen_by"]) for one in json.loads(text))
    return {one.table: one for one in found}


def chosen(batches: Iterable[TableBatch], ranges: Mapping[TableId, TableRange]) -> Iterator[TableBatch]:
    """Only what belongs to each table's range."""
    for one in batches:
        range_ = ranges[one.version.schema.id]
        keep = pc.greater(one.batch.column("end_lsn"), int(range_.after))
        if range_.unseen_by is not None:
            snapshot = VisibleTransactions.parse(range_.unseen_by)
            seen = {xid: snapshot.sees(xid) for xid in pc.unique(one.batch.column("xid")).to_pylist()}
            unseen = pa.array([xid for xid, is_seen in seen.items() if not is_seen], pa.int64())
            keep = pc.and_(keep, pc.is_in(one.batch.column("xid"), value_set=unseen))
        batch = one.batch.filter(keep)
        if batch.num_rows:
            yield TableBatch(one.version, batch)


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
        fields[name] = retarget_struct(batch.column(name), schema, Tally(TEXT, special_values))
    fields |= {name: batch.column(name) for name in ("old_kind", "unchanged")}
    return json_objects(pa.StructArray.from_arrays(list(fields.values()), list(fields)))


def _lsn_text(lsns: pa.Array) -> pa.Array:
    """As Postgres prints them. Few differ within a batch."""
    encoded = lsns.dictionary_encode()
    words = pa.array([str(Lsn(lsn)) for lsn in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, words).cast(pa.string())
