"""A change log of one batch, in the pipeline's staging directory: any destination reads it as it reads the real one."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.decode.changes import TableChanges, change_schema
from walrelay.log.identity import FORMAT, IDENTITY
from walrelay.log.manifest import FIRST_SEQUENCE, DataFile, Entry, data_path
from walrelay.log.reader import LogReader
from walrelay.log.schemas import schema_path
from walrelay.log.segment import Segment
from walrelay.log.storage import PRIVATE, LocalStorage
from walrelay.model.lineage import Lineage
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.schema_json import version_to_json

MEMORY_BYTES = 64 * 1024 * 1024
"""Of a batch's changes, before they are written."""
LINKED_EPOCH = 2
"""In the names of files that are another log's own; those that are written here have 1."""


class ScratchStorage(LocalStorage):
    """A directory that nobody needs after a crash: nothing waits for the disk."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root.absolute()

    def put(self, path: str, body: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE), "wb") as file:
            file.write(body)

    def sync(self, directory: str) -> None:
        pass


@dataclass
class SmallLog:
    """While it is written: made of the batch's files, or of others in their place."""

    batch: EventBatch
    entries: list[Entry]
    directory: Path
    names: dict[TableId, TableName] = field(default_factory=dict)
    """What the tables in it are called there."""

    def __post_init__(self) -> None:
        self._storage = ScratchStorage(self.directory)
        self._linked: list[DataFile] = []
        # As if the log had begun here. Files that are linked may hold more than the batch does.
        self._start = min([self.batch.after, *(entry.start_lsn for entry in self.entries)])
        self._end = max([self.batch.to, *(entry.end_lsn for entry in self.entries)])
        self._put_lineage(replace(self.batch.log.lineage(), created_lsn=self._start))
        self._segment = Segment(
            self._storage, sequence=FIRST_SEQUENCE, epoch=1, start_lsn=self._start, memory_bytes=MEMORY_BYTES
        )

    def files(self) -> list[DataFile]:
        """The batch's, of tables that take part."""
        return files_of(self.batch, self.entries)

    def part(self, tables: set[TableId]) -> EventBatch:
        """Of the batch what belongs to these tables."""
        whole = tuple(TableRange(table, self.batch.after) for table in sorted(tables))
        taken = self.batch.ranges if self.batch.ranges is not None else whole
        return replace(self.batch, ranges=tuple(one for one in taken if one.table in tables), shapes=())

    def knows(self, version: SchemaVersion) -> None:
        """Changes of this shape may be added."""
        body = {**version_to_json(version), "fingerprint": ""}
        self._storage.put(schema_path(version.schema.id, version.version), json.dumps(body).encode())
        self.names[version.schema.id] = version.schema.name

    def add(self, version: SchemaVersion, batch: pa.RecordBatch) -> None:
        """Changes, with columns as `reading_schema` has them."""
        self._segment.add([TableChanges(version, stored(batch, version))])

    def link(self, file: DataFile) -> None:
        """A file of the batch as it is. Raises FileNotFoundError when compaction has taken it away."""
        number = len(self._linked) + LINKED_EPOCH
        path = data_path(FIRST_SEQUENCE, FIRST_SEQUENCE, number, file.table, file.version)
        target = self._storage.root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source = self.batch.log.storage.location(file.path)
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # on another file system, or one without links
            shutil.copyfile(source, target)
        self._linked.append(replace(file, path=path))

    def finish(self) -> EventBatch:
        """The same range, of this log."""
        self._segment.committed(0, self._end, max((entry.commit_time for entry in self.entries), default=0))
        entry = self._segment.finish()
        files = (*entry.files, *self._linked)
        whole = replace(entry, files=files, rows=sum(one.rows for one in files), bytes=sum(one.bytes for one in files))
        self._storage.put(whole.path, whole.to_json())
        root = self._storage.root
        return replace(self.batch, log=LogReader(self._storage), location=str(root), format=lambda: "walrelay")

    def abandon(self) -> None:
        self._segment.abandon()

    def _put_lineage(self, lineage: Lineage) -> None:
        fields = {
            "slot": lineage.slot,
            "system_identifier": lineage.system_identifier,
            "timeline": lineage.timeline,
            "created_lsn": str(lineage.created_lsn),
        }
        self._storage.put(IDENTITY, json.dumps({"format": FORMAT, "lineage": fields}).encode())


def files_of(batch: EventBatch, entries: list[Entry]) -> list[DataFile]:
    """The files of tables that take part in the batch."""
    taking = None if batch.ranges is None else {one.table for one in batch.ranges}
    found = (file for entry in entries for file in entry.files if file.table is not None)
    return [file for file in found if taking is None or file.table in taking]


def stored(batch: pa.RecordBatch, version: SchemaVersion) -> pa.RecordBatch:
    """With words as the log keeps them."""
    schema = change_schema(version.schema)
    columns = [
        pc.dictionary_encode(column).cast(part.type) if pa.types.is_dictionary(part.type) else column
        for part, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
