"""Record batches → Parquet files in a staging directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.destinations.base import LandedFile
from walrelay.destinations.staging import staging_failure

GROUP_BYTES = 16 * 1024 * 1024
"""Of Arrow data in a row group: readers work on whole groups, and small ones cost them."""


class Landing:
    """Writes one task's rows. A file counts only once `files()` names it: an attempt that dies names none."""

    def __init__(self, directory: str, schema: pa.Schema, *, file_bytes: int) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._file_bytes = file_bytes
        # Spark may run a task again while its first attempt is still writing.
        self._attempt = uuid.uuid4().hex
        self._writer: pq.ParquetWriter | None = None
        self._path = Path()
        self._group: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._group_bytes = 0
        self._done: list[LandedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            if self._writer is None:
                self._open()
            self._group.append(batch)
            self._group_bytes += batch.nbytes
            if self._group_bytes >= GROUP_BYTES:
                self._flush()
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
        # These files are read once, by a machine, soon: no compression, no dictionaries, no statistics.
        self._writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        self._rows = self._bytes = 0

    def _flush(self) -> None:
        """Write the batches at hand as one row group."""
        if self._writer is None or not self._group:
            return
        group = pa.Table.from_batches(self._group, self._schema)
        self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
        self._rows += group.num_rows
        self._bytes += self._group_bytes
        self._group, self._group_bytes = [], 0

    def _close(self) -> None:
        if self._writer is None:
            return
        self._flush()
        self._writer.close()
        self._writer = None
        self._done.append(LandedFile(str(self._path), self._rows, self._path.stat().st_size))
