"""One segment while it is written: a Parquet file per table and schema version, published as a whole or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walrelay.decode.changes import COMMIT_TIME_TYPE, OPTIONAL, SeenMessage, TableChanges, change_schema
from walrelay.decode.quarantine import QUARANTINE_SCHEMA, QuarantinedChanges
from walrelay.failpoints import hit
from walrelay.log.failures import named_write
from walrelay.log.manifest import DATA, DataFile, Entry, SentPart, Treated, data_path
from walrelay.log.storage import Sink, Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special

GROUP_BYTES = 16 * 1024 * 1024
"""Of Arrow data in a row group."""
MESSAGES_SCHEMA = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("end_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("xid", pa.int64()),
        ("commit_time", COMMIT_TIME_TYPE),
        ("transactional", pa.bool_()),
        ("prefix", pa.string()),
        ("content", pa.binary()),
    ]
)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """As Parquet can hold it: it knows no struct without fields, so a row without columns is a plain true."""
    return pa.schema([pa.field(f.name, pa.bool_()) if _is_bare(f.type) else f for f in schema])


def _is_bare(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.num_fields == 0)


def parquet_writer(sink: Sink, schema: pa.Schema) -> pq.ParquetWriter:
    """How the log writes Parquet: quick to write and to read; LSNs have statistics, so that ranges skip row groups."""
    return pq.ParquetWriter(
        sink.file,
        schema,
        compression="none",
        use_dictionary=["op", "old_kind"],
        write_statistics=["commit_lsn", "end_lsn"],
        store_schema=False,
        store_decimal_as_integer=True,
    )


class _TableFile:
    """The changes of one table in one version, or (`version` None) those that could not be decoded. Few stay in memory
    until the end; many are written as they come."""

    def __init__(self, storage: Storage, path: str, version: SchemaVersion | None) -> None:
        self.version = version
        self.path = path
        self.rows = 0
        self.buffered = 0
        self.first = self.last = 0
        self._storage = storage
        self._schema = QUARANTINE_SCHEMA if version is None else stored_schema(change_schema(version.schema))
        self._batches: list[pa.RecordBatch] = []
        self._sink: Sink | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> int:
        lsns = batch.column(0)
        first, last = lsns[0].as_py(), lsns[len(lsns) - 1].as_py()
        # Of several tables, one comes after the other.
        self.first = min(self.first, first) if self.rows else first
        self.last = max(self.last, last)
        self._batches.append(batch)
        size = int(batch.nbytes)
        self.rows += batch.num_rows
        self.buffered += size
        return size

    def write_group(self, *, last: bool) -> None:
        """Write what is in memory. Only the last group of a file that has no other may leave columns out."""
        if not self._batches:
            return
        with named_write(self._storage.location(self.path)):
            if self._writer is None:
                names = {name for batch in self._batches for name in batch.schema.names}
                if last:
                    absent = [name for name in OPTIONAL if name not in names]
                    self._schema = pa.schema([f for f in self._schema if f.name not in absent])
                self._sink = self._storage.sink(self.path)
                self._writer = parquet_writer(self._sink, self._schema)
            group = pa.Table.from_batches([_padded(batch, self._schema) for batch in self._batches], self._schema)
            self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
        self._batches, self.buffered = [], 0

    def finish(self) -> DataFile:
        self.write_group(last=True)
        assert self._writer is not None and self._sink is not None
        with named_write(self._storage.location(self.path)):
            self._writer.close()
        size = self._sink.finish()
        first, last = Lsn(self.first), Lsn(self.last)
        if self.version is None:
            return DataFile(self.path, None, "", 0, self.rows, size, first, last, "quarantine")
        schema = self.version.schema
        return DataFile(
            self.path,
            schema.id,
            str(schema.name),
            self.version.version,
            self.rows,
            size,
            first,
            last,
        )

    def abandon(self) -> None:
        if self._sink is not None:
            self._sink.abandon()


def _padded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of the file, as it stores them; NULL where it has none."""
    if batch.schema.equals(schema):
        return batch
    present = {name: _stored(batch.column(place)) for place, name in enumerate(batch.schema.names)}
    columns = [present.get(f.name) for f in schema]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(batch.num_rows, f.type) if column is None else column
            for f, column in zip(schema, columns, strict=True)
        ],
        schema=schema,
    )


def _stored(column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), True, None) if _is_bare(column.type) else column


class Segment:
    """Number `sequence` of the log, from `start_lsn` on."""

    def __init__(
        self,
        storage: Storage,
        *,
        sequence: int,
        epoch: int,
        start_lsn: Lsn,
        memory_bytes: int,
        treated: Treated | None = None,
    ) -> None:
        """`treated` is what the log counted before this segment."""
        self._storage = storage
        self._sequence = sequence
        self._epoch = epoch
        self._start_lsn = start_lsn
        self._memory_bytes = memory_bytes
        self._files: dict[tuple[TableId, int] | None, _TableFile] = {}
        """By table and version; None has what could not be decoded."""
        self._messages: list[SeenMessage] = []
        self._end_lsn = start_lsn
        self._commit_time = 0
        self.transactions = 0
        self.bytes = 0
        self.opened_at = 0.0
        self.parts: list[SentPart] = []
        self.treated: Treated = {table: dict(counts) for table, counts in (treated or {}).items()}
        """Values treated by policy, from the log's beginning on."""

    @property
    def empty(self) -> bool:
        """Nothing is in it, so that nothing would be lost with it."""
        return self.transactions == 0 and not self.has_content

    @property
    def has_content(self) -> bool:
        """Whether there is anything for a reader."""
        return bool(self._files or self._messages)

    @property
    def end_lsn(self) -> Lsn:
        return self._end_lsn

    @property
    def in_memory(self) -> int:
        return sum(file.buffered for file in list(self._files.values()))

    def add(self, changes: Iterable[TableChanges | QuarantinedChanges | SeenMessage]) -> None:
        for one in changes:
            self._opened()
            if isinstance(one, SeenMessage):
                self._messages.append(one)
                self.bytes += len(one.message.content) + 64
                continue
            file = self._file_for(one)
            self.bytes += file.add(one.batch)
            if file.buffered >= GROUP_BYTES:
                file.write_group(last=False)
            while self.in_memory > self._memory_bytes:
                max(self._files.values(), key=lambda each: each.buffered).write_group(last=False)

    def _file_for(self, one: TableChanges | QuarantinedChanges) -> _TableFile:
        numbers = (self._sequence, self._sequence, self._epoch)
        if isinstance(one, QuarantinedChanges):
            if None not in self._files:
                path = data_path(*numbers, None, kind="quarantine")
                self._files[None] = _TableFile(self._storage, path, None)
            return self._files[None]
        key = (one.version.schema.id, one.version.version)
        if key not in self._files:
            self._files[key] = _TableFile(self._storage, data_path(*numbers, *key), one.version)
        self._count(str(one.version.schema.name), one.treated)
        return self._files[key]

    def _count(self, table: str, treated: Counter[Special]) -> None:
        for special, count in treated.items():
            counts = self.treated.setdefault(table, {})
            counts[special.name] = counts.get(special.name, 0) + count

    def committed(self, transactions: int, end_lsn: Lsn, commit_time: int) -> None:
        """Everything up to `end_lsn` was added."""
        self._opened()
        self.transactions += transactions
        self._end_lsn = max(self._end_lsn, end_lsn)
        self._commit_time = max(self._commit_time, commit_time)

    def _opened(self) -> None:
        if not self.opened_at:
            self.opened_at = time.monotonic()

    def finish(self) -> Entry:
        """Make all files durable; the entry that names them is yet to be published."""
        files = [file.finish() for file in self._files.values()]
        if self._messages:
            files.append(self._write_messages())
        if files:
            self._storage.sync(DATA)
        hit("segment.files_durable")
        return Entry(
            first=self._sequence,
            last=self._sequence,
            start_lsn=self._start_lsn,
            end_lsn=self._end_lsn,
            transactions=self.transactions,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            commit_time=self._commit_time,
            created_at=time.time(),
            files=tuple(files),
            treated=self.treated,
            parts=tuple(dict.fromkeys(self.parts)),
        )

    def abandon(self) -> None:
        for file in self._files.values():
            file.abandon()

    def _write_messages(self) -> DataFile:
        path = data_path(self._sequence, self._sequence, self._epoch, None)
        seen = self._messages
        table = pa.table(
            [
                [one.commit_lsn for one in seen],
                [one.end_lsn for one in seen],
                [one.ordinal for one in seen],
                [one.xid for one in seen],
                pa.array([one.commit_time or None for one in seen], pa.int64()).view(COMMIT_TIME_TYPE),
                [one.message.transactional for one in seen],
                [one.message.prefix for one in seen],
                [one.message.content for one in seen],
            ],
            schema=MESSAGES_SCHEMA,
        )
        sink = self._storage.sink(path)
        with named_write(self._storage.location(path)), parquet_writer(sink, MESSAGES_SCHEMA) as writer:
            writer.write_table(table)
        first, last = Lsn(seen[0].commit_lsn), Lsn(seen[-1].commit_lsn)
        return DataFile(path, None, "", 0, len(seen), sink.finish(), first, last)
