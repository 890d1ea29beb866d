"""Reading the log: by table as Arrow, or change by change in commit order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walrelay.decode.changes import change_schema
from walrelay.decode.plain_rows import plain_rows
from walrelay.log.failures import LogDamagedError, named
from walrelay.log.manifest import DataFile, Entry
from walrelay.log.storage import Storage
from walrelay.log.view import LogView
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema

READ_ROWS: Final = 8_192
ATTEMPTS: Final = 10
"""How often a range is looked up again when compaction has replaced a file meanwhile."""


def reading_schema(schema: TableSchema) -> pa.Schema:
    """What `batches` gives for a table: all columns of a change, words as plain strings."""
    return pa.schema(
        [pa.field(f.name, pa.string()) if pa.types.is_dictionary(f.type) else f for f in change_schema(schema)]
    )


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Some changes of a table under one schema version, in order; columns as in `reading_schema`."""

    version: SchemaVersion
    batch: pa.RecordBatch

    def changes(self) -> Iterator[Change]:
        """One by one; slow by nature."""
        name = self.version.schema.name
        for fields in plain_changes(self.batch):
            yield Change(table=name, **fields)


class LogReader(LogView):
    """A log, seen by somebody who only reads. Sees whole transactions, and never half of a segment."""

    def batches(
        self, after: Lsn | None = None, to: Lsn | None = None, tables: set[TableId] | None = None
    ) -> Iterator[TableBatch]:
        """Changes by table: in order within a table, and segment by segment; tables of a segment one after another."""

        def in_turn(_: Entry, files: list[_OpenFile], low: Lsn, high: Lsn) -> Iterator[TableBatch]:
            for file in files:
                yield from file.batches(low, high)

        yield from self._each_entry(after, to, tables, in_turn)

    def changes(
        self, after: Lsn | None = None, to: Lsn | None = None, tables: set[TableId] | None = None
    ) -> Iterator[Change]:
        """Single changes in commit order, all tables merged. Memory is bounded, also for a huge transaction."""

        def merged(_: Entry, files: list[_OpenFile], low: Lsn, high: Lsn) -> Iterator[Change]:
            return heapq.merge(*(file.changes(low, high) for file in files), key=lambda c: (c.commit_lsn, c.ordinal))

        yield from self._each_entry(after, to, tables, merged)

    def segments(
        self, after: Lsn | None = None, to: Lsn | None = None, tables: set[TableId] | None = None
    ) -> Iterator[list[Iterator[TableBatch]]]:
        """Segment by segment, in order: for each of its files the batches, which are good until the next segment."""

        def together(_: Entry, files: list[_OpenFile], low: Lsn, high: Lsn) -> Iterator[list[Iterator[TableBatch]]]:
            yield [file.batches(low, high) for file in files]

        yield from self._each_entry(after, to, tables, together)

    def truncates(self, table: TableId, after: Lsn, to: Lsn) -> dict[int, bool]:
        """The transactions that have truncated the table in between; and whether that was the last they did to it."""
        truncated, changed = dict[int, int](), dict[int, int]()
        for one in self.batches(max(after, self.start()), to, {table}):
            ordinals = pa.table({"xid": one.batch.column("xid"), "ordinal": one.batch.column("ordinal")})
            is_truncate = pc.equal(one.batch.column("op"), "truncate")
            for found, chosen in ((truncated, ordinals.filter(is_truncate)), (changed, ordinals)):
                last = chosen.group_by("xid").aggregate([("ordinal", "max")])
                found.update(zip(last["xid"].to_pylist(), last["ordinal_max"].to_pylist(), strict=True))
        return {xid: changed[xid] == ordinal for xid, ordinal in truncated.items()}

    def messages(self, after: Lsn | None = None, to: Lsn | None = None) -> Iterator[dict[str, Any]]:
        """Logical messages, in order."""
        for entry in self.entries(after, to):
            for file in entry.files:
                if file.table is None and not file.kind:
                    with named(self.storage.location(file.path)), self.storage.open(file.path) as handle:
                        rows = pq.read_table(handle).to_pylist()
                    low, high = after or Lsn(0), to or entry.end_lsn
                    yield from (row for row in rows if low < row["end_lsn"] <= high)

    def _each_entry(
        self,
        after: Lsn | None,
        to: Lsn | None,
        tables: set[TableId] | None,
        look: Callable[[Entry, list[_OpenFile], Lsn, Lsn], Any],
    ) -> Iterator[Any]:
        """Open each segment's files at once, so that a merge in the background cannot take them away while reading."""
        low = after if after is not None else max(self.start(), self.lineage().created_lsn)
        high = to if to is not None else self.end()
        attempts = 0
        while low < high:
            entries = self._manifest.between(low, high)
            if not entries:
                return
            for entry in entries:
                try:
                    files = self._open(entry, tables)
                except FileNotFoundError as error:
                    attempts += 1
                    if attempts > ATTEMPTS:
                        raise LogDamagedError(f"a file of the log's entry {entry.name} is missing") from error
                    break
                try:
                    yield from look(entry, files, low, high)
                finally:
                    for file in files:
                        file.close()
                low = max(low, entry.end_lsn)
                attempts = 0
            else:
                return

    def _open(self, entry: Entry, tables: set[TableId] | None) -> list[_OpenFile]:
        opened: list[_OpenFile] = []
        try:
            for file in entry.files:
                if file.table is not None and (tables is None or file.table in tables):
                    opened.append(_OpenFile(self.storage, file, self.version(file.table, file.version), entry))
        except BaseException:
            for one in opened:
                one.close()
            raise
        return opened


class _OpenFile:
    """A data file, open."""

    def __init__(self, storage: Storage, file: DataFile, version: SchemaVersion, entry: Entry) -> None:
        self._where = storage.location(file.path)
        self._handle = storage.open(file.path)
        self._version = version
        self._entry = entry
        with named(self._where):
            self._parquet = pq.ParquetFile(self._handle)

    def batches(self, low: Lsn, high: Lsn) -> Iterator[TableBatch]:
        """Its changes with `low` < end LSN ≤ `high`."""
        schema = reading_schema(self._version.schema)
        cut = low > self._entry.start_lsn or high < self._entry.end_lsn
        with named(self._where):
            for whole in self._parquet.iter_batches(batch_size=READ_ROWS):
                batch = _between(whole, low, high) if cut else whole
                if batch.num_rows:
                    yield TableBatch(self._version, _conform(batch, schema))

    def changes(self, low: Lsn, high: Lsn) -> Iterator[Change]:
        for one in self.batches(low, high):
            yield from one.changes()

    def close(self) -> None:
        self._parquet.close()
        self._handle.close()


def _between(batch: pa.RecordBatch, low: Lsn, high: Lsn) -> pa.RecordBatch:
    ends = batch.column("end_lsn")
    return batch.filter(pc.and_(pc.greater(ends, int(low)), pc.less_equal(ends, int(high))))


def plain_changes(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The fields of `Change`, but for the table, for each change of a batch."""
    rows, olds = _images(batch, "row"), _images(batch, "old")
    rest = batch.select([name for name in batch.schema.names if name not in ("row", "old")])
    for row, old, fields in zip(rows, olds, rest.to_pylist(), strict=True):
        fields["commit_lsn"], fields["end_lsn"] = Lsn(fields["commit_lsn"]), Lsn(fields["end_lsn"])
        fields["unchanged"] = tuple(fields["unchanged"] or ())
        yield {**fields, "row": row, "old": old}


def _images(batch: pa.RecordBatch, name: str) -> Iterator[dict[str, Any] | None]:
    column = batch.column(name)
    if column.null_count == len(column):
        yield from (None for _ in range(len(column)))
        return
    if column.type.num_fields == 0:
        yield from ({} if valid else None for valid in column.is_valid().to_pylist())
        return
    inner = pa.RecordBatch.from_arrays(column.flatten(), schema=pa.schema(list(column.type)))
    for valid, row in zip(column.is_valid().to_pylist(), plain_rows(inner), strict=True):
        yield row if valid else None


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """All columns, in order, of the types they were written as; Parquet forgets some, and absent means NULL."""
    present = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
    columns = []
    for wanted in schema:
        column = present.get(wanted.name)
        if column is None:
            column = pa.nulls(batch.num_rows, wanted.type)
        elif pa.types.is_struct(wanted.type) and wanted.type.num_fields == 0:
            # A row without columns is stored as a plain true.
            column = pa.Array.from_buffers(wanted.type, len(column), [column.is_valid().buffers()[1]])
        elif column.type != wanted.type:
            column = column.cast(wanted.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
