"""A database while it is written to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.apply import Application, Limits, Options, Taken, refuse_bare
from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.copy import TableCopy
from walrelay.destinations.clickhouse.facts import fresh_columns, key_of, new_epoch
from walrelay.destinations.clickhouse.failures import naming
from walrelay.destinations.clickhouse.history import History
from walrelay.destinations.clickhouse.layout import create_storage
from walrelay.destinations.clickhouse.maintenance import Maintenance
from walrelay.destinations.clickhouse.names import OwnNames, refuse_names
from walrelay.destinations.clickhouse.places import Places
from walrelay.destinations.clickhouse.preflight import Able
from walrelay.destinations.clickhouse.progress import Progress
from walrelay.destinations.clickhouse.storages import Storages
from walrelay.destinations.notices import not_maintained
from walrelay.errors import WalrelayError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import Special

SIDE_BY_SIDE = 4
"""Tables that are written at the same time."""


class Run:
    """Of one pipeline. A table is written by one thread at a time."""

    def __init__(
        self, server: Server, able: Able, context: DestinationContext, options: Options, limits: Limits
    ) -> None:
        self._server = server
        self._able = able
        self._context = context
        marks = self._marks = options.marks
        self._pipeline = context.pipeline_name or context.pipeline_id
        self._own = OwnNames.of(self._pipeline, context.source_id or "")
        self._places = Places(server, context, marks=marks)
        self._storages = Storages(server)
        self._progress = Progress(server)
        self._progress.create()
        self._progress.read()
        policy = context.settings.special_values
        kept = History(server, self._own, able.years, policy, limits.block_bytes, marks=marks)
        self._history = kept if options.history else None
        self._application = Application(
            server, self._places, self._storages, self._own, context, able.years, limits, self._history, marks=marks
        )
        self._maintenance = Maintenance(
            server, self._places, self._storages, self._own, self._progress, options.look_every, limits.unneeded_rows
        )
        self._alone: dict[TableId, threading.Lock] = {}
        self._storages.sweep(self._own, self._places.storages())

    def _lock(self, table: TableId) -> threading.Lock:
        return self._alone.setdefault(table, threading.Lock())

    def close(self) -> None:
        self._storages.tidy(at_once=True)

    # ------------------------------------------------------------------------------------------------------- copies

    def _refuse(self, schema: TableSchema) -> None:
        refuse_bare(schema)
        refuse_names(schema, marks=self._marks)
        self._able.refuse_tuples(schema)
        self._places.refuse_taken(schema)
        self._places.refuse_stranger(schema, copying=True)

    def forget(self, schema: TableSchema) -> None:
        """What was applied; the rows stay until the copy takes their place."""
        with self._lock(schema.id), naming(schema.id, schema.name):
            self._refuse(schema)
            held = self._places.held(schema.id)
            if held is not None and self._progress.reached(held.facts.epoch) is not None:
                self._places.renew(schema.id, new_epoch())

    def copy(self, schema: TableSchema, rows: TableRows) -> Counter[Special]:
        """The landed files behind the view, in one step, in place of whatever was there."""
        with self._lock(schema.id), naming(schema.id, schema.name):
            self._refuse(schema)
            columns = fresh_columns(schema)
            storage, copied = self._own.storage(schema.id), rows.snapshot_lsn or Lsn(0)
            facts = self._places.facts_for(schema, storage, columns, key_of(schema, columns), copied)
            self._server.command(create_storage(self._server, facts), doing=f"copying {schema.name}")
            try:
                policy = self._context.settings.special_values
                copy = TableCopy(self._server, facts, rows, self._able.years, policy, self._context.stopping)
                treated = copy.run()
                name = self._places.follow_name(schema)
                before = self._places.held(schema.id)
                hit("destination.before_commit")
                self._places.show(name, facts)
                hit("destination.committed")
            except BaseException:
                self._storages.leave(storage)
                raise
            if before is not None:
                self._storages.leave(before.facts.storage)
            if self._history is not None:
                self._history.copied(schema, copied)
            return treated

    # ------------------------------------------------------------------------------------------------------ changes

    def take_all(self, batch: EventBatch) -> list[tuple[TableId, Taken]]:
        """Every table's changes, several side by side, and shapes that no change has shown. How far tables are is
        recorded also when others fail."""
        parts = batch.tables()
        work: list[Callable[[], Taken]] = [partial(self._take, batch, part) for part in parts]
        work += [partial(self._show, shown) for shown in batch.shapes]
        futures = _side_by_side(work)
        ids = [*(part.schema.id for part in parts), *(one.schema.id for one in batch.shapes)]
        failed = {table for table, one in zip(ids, futures, strict=True) if one.exception() is not None}
        self._reached(batch, {part.schema.id for part in parts}, failed)
        self._storages.tidy()
        self._look_after(set(ids) - failed)
        done = [one.result() for one in futures]
        return [(part.schema.id, one) for part, one in zip(parts, done, strict=False)]

    def _take(self, batch: EventBatch, part: TableChanges) -> Taken:
        with self._lock(part.schema.id), naming(part.schema.id, part.schema.name):
            if self._places.held(part.schema.id) is None:
                self._able.refuse_tuples(part.schema)
            return self._application.take(batch.log.storage, part, self.applied(part.schema.id))

    def _show(self, version: SchemaVersion) -> Taken:
        with self._lock(version.schema.id), naming(version.schema.id, version.schema.name):
            self._application.follow([version])
        return Taken()

    # ----------------------------------------------------------------------------------------------------- progress

    def _reached(self, batch: EventBatch, changed: set[TableId], failed: set[TableId]) -> None:
        """All tables that took part, also those without changes."""
        tables = set(self._places.ids()) | changed if batch.ranges is None else {one.table for one in batch.ranges}
        found = [held for table in tables - failed if (held := self._places.held(table)) is not None]
        self._progress.record({one.facts.epoch: one.name for one in found}, batch.to, self._pipeline)

    def _look_after(self, tables: set[TableId]) -> None:
        """What goes wrong is no reason to stop: the table is right, only slower to read than it might be."""
        for table in sorted(tables):
            if self._context.stopping.is_set() or not self._maintenance.is_due(table):
                continue
            try:
                with self._lock(table):
                    self._maintenance.look_after(table)
            except WalrelayError as error:
                self._context.notify(not_maintained(None, error))

    def applied(self, table: TableId) -> Lsn | None:
        held = self._places.held(table)
        return None if held is None else self._progress.reached(held.facts.epoch)


def _side_by_side(work: list[Callable[[], Taken]]) -> list[Future[Taken]]:
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="walrelay-clickhouse") as pool:
        return [pool.submit(one) for one in work]
