"""Tables kept in memory: for tests and small scripts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pyarrow as pa

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.steps import SchemaStep, schema_steps
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.errors import CopyAgainError, MissingRowError
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema

Row = dict[str, Any]


class MemoryDestination(SimpleDestination):
    """Rows as they are now with `rows("public.orders")`. Copies as they came, as Arrow, are in `tables`; changes, in
    commit order and each once, in `changes`."""

    name = "memory"
    capabilities = Capabilities(kind="tables", takes_changes=True, keeps_progress=True, atomic_across_tables=True)

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.schemas: dict[str, TableSchema] = {}
        self.changes: list[Change] = []
        self._current: dict[str, _Rows] = {}
        self._shapes: dict[TableId, tuple[TableSchema, Lsn]] = {}
        """What each looks like, and since when."""
        self._applied: dict[TableId, Lsn] = {}
        self._whole: Lsn | None = None
        self._lock = threading.Lock()

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        with self._lock:
            self._applied.pop(schema.id, None)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        table = rows.arrow()
        name = str(schema.name)
        with self._lock:
            self.tables[name] = table
            self.schemas[name] = schema
            self._shapes[schema.id] = schema, rows.snapshot_lsn or Lsn(0)
            self._current[name] = _Rows([row for batch in table.to_batches() for row in plain_rows(batch)])
        return WriteResult(durable=True, rows=table.num_rows)

    def write_events(self, batch: EventBatch) -> WriteResult:
        count = 0
        with self._lock:
            parts = batch.tables()
            for part in parts:
                self._refuse_guesses(part)
            homes = {(str(one.schema.name), one.version): one for part in parts for one in part.versions}
            keys = {part.schema.id: part.key for part in parts}
            with self._all_or_nothing():
                for change in batch.changes():
                    version = homes[str(change.table), change.schema_version]
                    table = version.schema.id
                    if change.end_lsn <= self._held(table, batch):
                        continue
                    self._follow(version).apply(change, keys[table])
                    self.changes.append(change)
                    count += 1
            for table in self._taking_part(batch):
                self._applied[table] = max(batch.to, self._applied.get(table, batch.to))
            if batch.ranges is None:
                self._whole = batch.to
        return WriteResult(durable=True, rows=count)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return self._whole if table is None else self._applied.get(table)

    def rows(self, table: str) -> list[Row]:
        """The rows of a table as dictionaries."""
        with self._lock:
            return self._current[table].all()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What was taken of a batch that fails would be taken twice, when it comes again without the failed table."""
        current, shapes = {name: rows.copy() for name, rows in self._current.items()}, dict(self._shapes)
        taken = len(self.changes)
        try:
            yield
        except BaseException:
            self._current, self._shapes = current, shapes
            del self.changes[taken:]
            raise

    def _refuse_guesses(self, part: TableChanges) -> None:
        """Before anything is taken: what older rows hold in a column may not be in the log."""
        known, since = self._shapes.get(part.schema.id, (None, Lsn(0)))
        if known is None:
            return
        shapes = [known, *(one.schema for one in part.versions if one.from_lsn > since)]
        for step in (step for one, other in pairwise(shapes) for step in schema_steps(one, other)):
            if step.kind == "retype" or (step.kind == "add" and step.column is not None and step.column.filled):
                table = str(part.schema.name)
                raise CopyAgainError(f"{table} was altered, in its column {step.name}", context={"table": table})

    def _follow(self, version: SchemaVersion) -> _Rows:
        """The table's rows, with the columns and under the name that it has now; never back to older ones."""
        schema = version.schema
        known, since = self._shapes.get(schema.id, (schema, Lsn(0)))
        rows = self._current.pop(str(known.name), None) or _Rows([])
        if version.from_lsn > since:
            rows.alter(schema_steps(known, schema))
            known, since = schema, version.from_lsn
        self._current[str(known.name)], self._shapes[schema.id] = rows, (known, since)
        return rows

    def _held(self, table: TableId, batch: EventBatch) -> Lsn:
        """Changes up to here were taken before."""
        whole = self._whole if batch.ranges is None else None
        return self._applied.get(table, whole or Lsn(0))

    def _taking_part(self, batch: EventBatch) -> list[TableId]:
        if batch.ranges is not None:
            return [one.table for one in batch.ranges]
        return [part.schema.id for part in batch.tables()]


class _Rows:
    """A table's rows; found by key where there is one, else by all their values."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def all(self) -> list[Row]:
        return [dict(row) for row in self._rows]

    def copy(self) -> _Rows:
        """Rows themselves are never altered, only replaced."""
        return _Rows(list(self._rows))

    def alter(self, steps: tuple[SchemaStep, ...]) -> None:
        if not steps:
            return
        gone = {step.name for step in steps if step.kind == "drop"}
        now = {step.name: step.column.name for step in steps if step.kind == "rename" and step.column}
        new = {step.name: None for step in steps if step.kind == "add"}
        self._rows = [
            {**{now.get(name, name): value for name, value in row.items() if name not in gone}, **new}
            for row in self._rows
        ]

    def apply(self, change: Change, key: tuple[str, ...]) -> None:
        match change.op:
            case "truncate":
                self._rows.clear()
            case "insert":
                self._rows.append(dict(change.row or {}))
            case "update":
                new = change.row or {}
                place = self._find(change, change.old or new, key)
                before = self._rows[place]
                kept = {name: before[name] for name in change.unchanged}
                self._rows[place] = {**new, **kept}
            case "delete":
                del self._rows[self._find(change, change.old or {}, key)]

    def _find(self, change: Change, image: Row, key: tuple[str, ...]) -> int:
        names = key or tuple(image)
        wanted = [image[name] for name in names]
        for place, row in enumerate(self._rows):
            if [row.get(name) for name in names] == wanted:
                return place
        table = str(change.table)
        raise MissingRowError(f"a row that a change of {table} means is not there", context={"table": table})
