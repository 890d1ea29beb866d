"""Record batches → Parquet files in a staging directory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.rows import LandedFile
from walrelay.destinations.staging import staging_failure

GROUP_ROWS = 122_880
"""Rows of a row group. DuckDB's own have as many: it takes each of these for one of its own as it is. Of others it
leaves some half full, and joins them later, which takes as long again (decision 0006)."""
GROUP_BYTES = 64 * 1024 * 1024
"""Of Arrow data in a row group at most; rows wider than half a kilobyte make groups of a half, a quarter and so on."""

READ_ONCE: Mapping[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
"""By a machine, soon."""
KEPT: Mapping[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
"""A quarter of the size, for twice the time; with dictionaries it would be four times, and larger."""

BARE = pa.schema([("row", pa.bool_())])
"""How rows without columns land: Parquet has none."""


def landable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as a file can hold it."""
    return (
        batch if batch.num_columns else pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows, pa.bool_())], schema=BARE)
    )


class Landing:
    """Writes one task's rows. A file counts only once `files()` names it: an attempt that dies names none."""

    def __init__(self, directory: str, schema: pa.Schema, *, file_bytes: int, kept: bool = False) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._file_bytes = file_bytes
        self._encoding = KEPT if kept else READ_ONCE
        # Spark may run a task again while its first attempt is still writing.
        self._attempt = uuid.uuid4().hex
        self._writer: pq.ParquetWriter | None = None
        self._path = Path()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._rows = self._bytes = 0
        self._done: list[LandedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            if self._writer is None:
                self._open()
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += batch.nbytes
            while self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
                self._write_group(_group_rows(self._waiting_rows))
            if self._bytes >= self._file_bytes:
                self._close()
        except OSError as error:
            raise staging_failure(error, self._path) from error

    def files(self) -> Iterator[LandedFile]:
        """Close and name all files."""
        try:
            self._close()
        except OSError as error:
            raise staging_failure(error, self._path) from error
        yield from self._done

    def abandon(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.close()
            self._path.unlink(missing_ok=True)
        for file in self._done:
            Path(file.path).unlink(missing_ok=True)

    def _open(self) -> None:
        # The driver makes and removes the directory: a task that outlives its killed run must not bring it back.
        self._path = self._directory / f"{self._attempt}-{len(self._done)}.parquet"
        # Parquet's writer would make it by the umask.
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._writer = pq.ParquetWriter(
            self._path, self._schema, store_schema=False, store_decimal_as_integer=True, **self._encoding
        )
        self._rows = self._bytes = 0

    def _write_group(self, rows: int) -> None:
        """Write the first of the rows at hand as one row group."""
        assert self._writer is not None
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table.slice(0, rows), row_group_size=rows)
        size = self._waiting_bytes * rows // self._waiting_rows
        self._rows += rows
        self._bytes += size
        self._waiting = table.slice(rows).to_batches()
        self._waiting_rows -= rows
        self._waiting_bytes -= size

    def _close(self) -> None:
        if self._writer is None:
            return
        if self._waiting_rows:
            self._write_group(self._waiting_rows)
        self._writer.close()
        self._writer = None
        self._done.append(LandedFile(str(self._path), self._rows, self._path.stat().st_size))


def _group_rows(waiting: int) -> int:
    """How many of the rows at hand make a group."""
    rows = GROUP_ROWS
    while rows > waiting:
        rows //= 2
    return rows
