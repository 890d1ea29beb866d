"""A batch of changes, shaped: a small change log of its own, which any destination reads as it reads the real one.

It lives in the pipeline's staging directory until the destination has what is in it, and then it goes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.decode.changes import TableChanges, change_schema
from walrelay.destinations.staging import staging_failure
from walrelay.log.failures import LogDamagedError
from walrelay.log.identity import FORMAT, IDENTITY
from walrelay.log.manifest import FIRST_SEQUENCE, DataFile, Entry, data_path
from walrelay.log.reader import ATTEMPTS, LogReader, TableBatch
from walrelay.log.schemas import schema_path
from walrelay.log.segment import Segment
from walrelay.log.storage import PRIVATE, LocalStorage
from walrelay.model.lineage import Lineage
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.schema_json import version_to_json
from walrelay.shaping.changes import shaped_changes
from walrelay.shaping.plan import Plan
from walrelay.shaping.shaping import Shaping

MEMORY_BYTES = 64 * 1024 * 1024
"""Of a batch's changes, before they are written."""
LINKED_EPOCH = 2
"""In the names of files that are the real log's own; shaped ones have 1."""


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


@dataclass(frozen=True)
class ShapedBatch:
    """What the destination is given."""

    batch: EventBatch
    directory: Path | None = None
    """Where its files are, when it has files of its own."""
    names: Mapping[TableId, TableName] = field(default_factory=dict)
    """What the destination calls the tables in it."""

    def forget(self) -> None:
        """The destination has what it needs."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def shaped_batch(shaping: Shaping, batch: EventBatch, directory: Path) -> ShapedBatch:
    """The batch as the destination is to see it; the same one, where no table in it is shaped."""
    shown = tuple(_shaped_version(shaping, one) for one in batch.shapes if shaping.includes(one.schema))
    for attempt in range(ATTEMPTS):
        try:
            entries = batch.entries()
            if not _concerns(shaping, batch, entries) and shown == batch.shapes:
                return ShapedBatch(batch)
            return _ShapedLog(shaping, batch, entries, directory).write(shown)
        except FileNotFoundError as error:
            # Compaction has replaced a file meanwhile.
            shutil.rmtree(directory, ignore_errors=True)
            if attempt == ATTEMPTS - 1:
                raise LogDamagedError("a file of the log is missing") from error
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise staging_failure(error, directory) from error
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    raise AssertionError("unreachable")


def _concerns(shaping: Shaping, batch: EventBatch, entries: list[Entry]) -> bool:
    versions = {(file.table, file.version) for file in _files(batch, entries)}
    schemas = [batch.log.version(table, number).schema for table, number in versions if table is not None]
    return any(not shaping.includes(one) or shaping.plan(one) is not None for one in schemas)


def _files(batch: EventBatch, entries: Iterable[Entry]) -> list[DataFile]:
    taking = None if batch.ranges is None else {one.table for one in batch.ranges}
    found = (file for entry in entries for file in entry.files if file.table is not None)
    return [file for file in found if taking is None or file.table in taking]


def _shaped_version(shaping: Shaping, version: SchemaVersion) -> SchemaVersion:
    plan = shaping.plan(version.schema)
    return version if plan is None else replace(version, schema=plan.shaped)


class _ShapedLog:
    """While it is written."""

    def __init__(self, shaping: Shaping, batch: EventBatch, entries: list[Entry], directory: Path) -> None:
        self._shaping = shaping
        self._batch = batch
        self._entries = entries
        self._storage = ScratchStorage(directory)
        self._plans: dict[tuple[TableId, int], Plan | None] = {}
        self._linked: list[DataFile] = []
        # As if the log had begun here. Files that are linked may hold more than the batch does.
        self._start = min([batch.after, *(entry.start_lsn for entry in entries)])
        self._end = max([batch.to, *(entry.end_lsn for entry in entries)])
        self._names: dict[TableId, TableName] = {}

    def write(self, shown: tuple[SchemaVersion, ...]) -> ShapedBatch:
        batch, root = self._batch, self._storage.root
        self._put_lineage(replace(batch.log.lineage(), created_lsn=self._start))
        rewritten = self._sort_files()
        entry = self._rewritten(rewritten)
        files = (*entry.files, *self._linked)
        whole = replace(entry, files=files, rows=sum(one.rows for one in files), bytes=sum(one.bytes for one in files))
        self._storage.put(whole.path, whole.to_json())
        made = replace(batch, log=LogReader(self._storage), location=str(root), format=lambda: "walrelay", shapes=shown)
        return ShapedBatch(made, root, self._names)

    def _put_lineage(self, lineage: Lineage) -> None:
        fields = {
            "slot": lineage.slot,
            "system_identifier": lineage.system_identifier,
            "timeline": lineage.timeline,
            "created_lsn": str(lineage.created_lsn),
        }
        self._storage.put(IDENTITY, json.dumps({"format": FORMAT, "lineage": fields}).encode())

    def _sort_files(self) -> set[TableId]:
        """Which tables' changes are written anew. Files of the others are linked as they are, where they are local."""
        log, rewritten = self._batch.log, set[TableId]()
        for file in _files(self._batch, self._entries):
            assert file.table is not None
            version = log.version(file.table, file.version)
            key = (file.table, file.version)
            if not self._shaping.includes(version.schema):
                continue
            if key not in self._plans:
                plan = self._plans[key] = self._shaping.plan(version.schema)
                shaped = version if plan is None else replace(version, schema=plan.shaped)
                self._put_version(shaped)
                self._names[file.table] = shaped.schema.name
            if self._plans[key] is not None or not log.storage.local:
                rewritten.add(file.table)
        for file in _files(self._batch, self._entries):
            if file.table is not None and (file.table, file.version) in self._plans and file.table not in rewritten:
                self._link(file)
        return rewritten

    def _put_version(self, version: SchemaVersion) -> None:
        body = {**version_to_json(version), "fingerprint": ""}
        self._storage.put(schema_path(version.schema.id, version.version), json.dumps(body).encode())

    def _link(self, file: DataFile) -> None:
        number = len(self._linked) + LINKED_EPOCH
        path = data_path(FIRST_SEQUENCE, FIRST_SEQUENCE, number, file.table, file.version)
        target = self._storage.root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source = self._batch.log.storage.location(file.path)
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # on another file system, or one without links
            shutil.copyfile(source, target)
        self._linked.append(replace(file, path=path))

    def _rewritten(self, tables: set[TableId]) -> Entry:
        batch = self._batch
        segment = Segment(
            self._storage,
            sequence=FIRST_SEQUENCE,
            epoch=1,
            start_lsn=self._start,
            memory_bytes=MEMORY_BYTES,
        )
        if tables:
            whole = tuple(TableRange(table, batch.after) for table in sorted(tables))
            taken = batch.ranges if batch.ranges is not None else whole
            part = replace(batch, ranges=tuple(one for one in taken if one.table in tables), shapes=())
            try:
                for one in part.batches():
                    segment.add([self._shaped(one)])
            except BaseException:
                segment.abandon()
                raise
        segment.committed(0, self._end, max((entry.commit_time for entry in self._entries), default=0))
        return segment.finish()

    def _shaped(self, one: TableBatch) -> TableChanges:
        plan = self._plans[one.version.schema.id, one.version.version]
        if plan is None:
            return TableChanges(one.version, stored(one.batch, one.version))
        version = replace(one.version, schema=plan.shaped)
        return TableChanges(version, stored(shaped_changes(plan, one.batch), version))


def stored(batch: pa.RecordBatch, version: SchemaVersion) -> pa.RecordBatch:
    """With words as the log keeps them."""
    schema = change_schema(version.schema)
    columns = [
        pc.dictionary_encode(column).cast(field.type) if pa.types.is_dictionary(field.type) else column
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
