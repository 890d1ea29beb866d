"""Several Parquet files of one table and schema version → one, in the same order, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.log.failures import LogDamagedError, LogError, log_failure, named
from walrelay.log.storage import Storage

GROUP_BYTES: Final = 16 * 1024 * 1024
"""Of Arrow data in a row group."""
OPTIONAL: Final = ("old", "old_kind", "unchanged")
"""System columns that a file may lack, in the order in which they end a file (docs/decisions/0005)."""

_WHOLE_BYTES: Final = 4 * 1024 * 1024
"""A file up to this size is read at once."""
_READ_BYTES: Final = 1024 * 1024
"""Read at a time of each column of a larger one."""
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Taken from a file at a time, as far as the average size of its rows tells."""
_MOST_ROWS: Final = 8192


class UnlikeSchemaError(LogError):
    """The file at `index` has columns of other types than those before it: they cannot be one file."""

    code = "log.unlike_schemas"
    default_hint = "The files stay as they are, apart from each other: nothing is to be done."

    index = 0


def concatenate(
    storage: Storage, paths: Sequence[str], target: str, *, group_bytes: int = GROUP_BYTES
) -> tuple[int, int]:
    """Write the rows of all `paths`, in order, to the new file `target`, durable but for its name; its rows and bytes.

    A missing optional column becomes NULL where another file has it. Raises UnlikeSchemaError before it writes, and
    leaves no file when it fails.
    """
    schema, batch_rows = _survey(storage, paths)
    rows = 0
    sink = storage.sink(target)
    try:
        with (
            named(storage.location(target)),
            pq.ParquetWriter(
                sink.file,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=["op", "old_kind"],
                # What readers skip row groups by; statistics of values cost and help nobody.
                write_statistics=["commit_lsn", "end_lsn", "ordinal"],
                # After so many rows the writer looks whether a page is full; with large values that must be soon.
                write_batch_size=max(1, min(1024, batch_rows // 4)),
            ) as writer,
        ):
            for group in _groups(storage, paths, schema, batch_rows, group_bytes):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
                rows += group.num_rows
        return rows, sink.finish()
    except BaseException:
        sink.abandon()
        raise


def _survey(storage: Storage, paths: Sequence[str]) -> tuple[pa.Schema, int]:
    """The schema that holds the rows of all files, and how many rows to take at a time.

    The schema is that of the first file, with the optional columns that any of them has.
    """
    batch_rows = _MOST_ROWS
    fields: dict[str, pa.Field] = {}
    metadata: dict[bytes, bytes] | None = None
    required: list[str] = []
    for index, path in enumerate(paths):
        with _opened(storage, path) as file:
            schema = file.schema_arrow
            batch_rows = min(batch_rows, _batch_rows(file.metadata))
        names = [name for name in schema.names if name not in OPTIONAL]
        if index == 0:
            metadata, required = schema.metadata, names
        unlike = names != required or any(
            field.name in fields and not fields[field.name].equals(field) for field in schema
        )
        if unlike:
            error = UnlikeSchemaError(f"the columns of {storage.location(path)} are not those of {paths[0]}")
            error.index = index
            raise error
        fields.update({field.name: field for field in schema if field.name not in fields})
    ordered = [*required, *(name for name in OPTIONAL if name in fields)]
    return pa.schema([fields[name] for name in ordered], metadata=metadata), batch_rows


def _groups(
    storage: Storage, paths: Sequence[str], schema: pa.Schema, batch_rows: int, group_bytes: int
) -> Iterator[pa.Table]:
    """The rows of all files in tables of about `group_bytes`."""
    group: list[pa.RecordBatch] = []
    size = 0
    for path in paths:
        with _opened(storage, path) as file:
            for batch in file.iter_batches(batch_rows, use_threads=False):
                group.append(_completed(batch, schema))
                size += batch.nbytes
                if size >= group_bytes:
                    yield pa.Table.from_batches(group, schema)
                    group, size = [], 0
    if group:
        yield pa.Table.from_batches(group, schema)


def _batch_rows(metadata: pq.FileMetaData) -> int:
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    return max(1, int(_BATCH_BYTES * metadata.num_rows // max(size, 1))) if metadata.num_rows else _MOST_ROWS


def _completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    present = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in present else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _opened:  # noqa: N801 - reads as the function it would be
    """A data file while it is read; what cannot be read as Parquet is a damaged log."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._where = storage.location(path)
        self._local = storage.local
        self._source = storage.open(path)

    def __enter__(self) -> pq.ParquetFile:
        try:
            if self._source.size() <= _WHOLE_BYTES:
                # One request to an object store instead of one per column.
                return pq.ParquetFile(pa.BufferReader(self._source.read_buffer()))
            # Else a little of each column at a time.
            return pq.ParquetFile(self._source, pre_buffer=False, buffer_size=_READ_BYTES)
        except pa.ArrowException as error:
            self._source.close()
            raise LogDamagedError(f"{self._where} is no Parquet file") from error
        except OSError as error:
            self._source.close()
            raise self._failure(error) from error

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._source.close()
        if isinstance(error, pa.ArrowException):
            raise LogDamagedError(f"{self._where} cannot be read") from error
        if isinstance(error, OSError):
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> LogError:
        # Arrow also says OSError, without a number, when it finds less or other bytes than the footer promises.
        if self._local and not error.errno:
            return LogDamagedError(f"{self._where} cannot be read")
        return log_failure(error, self._where)
