"""How changes leave us, whoever sends them: none is left out silently, their shapes are in the store before, and only
what is durable counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.destinations.base import Destination, WriteResult
from walrelay.log.manifest import Entry
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.stores.base import PipelineStore
from walrelay.workers.quarantine import QuarantineRule
from walrelay.workers.treated import record_changes


@dataclass(frozen=True)
class Flight:
    """A batch that a destination was given."""

    ranges: tuple[TableRange, ...] | None
    to: Lsn
    result: WriteResult
    landed: Callable[[], WriteResult]
    """Waits until it is durable; then what belongs to it is written down."""
    began_at: float = field(default_factory=time.monotonic)
    """When the destination was first told of it, by the monotonic clock."""

    @property
    def is_over(self) -> bool:
        """Whether `landed` need not wait."""
        return self.result.later is None or self.result.later.done()


class EventWriter:
    """Shared by the apply worker and the catch-ups."""

    def __init__(
        self, log: LogReader, destination: Destination, store: PipelineStore, rule: QuarantineRule | None = None
    ) -> None:
        self._log = log
        self._destination = destination
        self._store = store
        self._rule = rule or QuarantineRule(store, "error")
        self._kept: set[tuple[TableId, int]] = set()
        """Versions that the store has."""
        self.treated: Counter[Special] = Counter()
        """Values that the destination has treated by policy since this was made."""

    def write(self, batch: EventBatch) -> WriteResult:
        """Until it is durable."""
        return self.send(batch).landed()

    def send(self, batch: EventBatch) -> Flight:
        """Until it is accepted."""
        began_at = time.monotonic()
        entries = batch.entries()
        quarantine = self._rule.within(batch, entries)
        self._rule.check(batch, quarantine)
        self._keep_shapes(batch, entries)
        result = self._destination.write_events(batch)

        def landed() -> WriteResult:
            done = result.settled().insist(f"the changes up to {batch.to}")
            self._rule.passed(batch, quarantine)
            record_changes(self._store, done.treated)
            for counts in done.treated.values():
                self.treated.update(counts)
            return done

        return Flight(batch.ranges, batch.to, result, landed, began_at)

    def _keep_shapes(self, batch: EventBatch, entries: list[Entry]) -> None:
        """What the destination, or anybody, asks the store about a table at an LSN is then right (SEMANTICS 17)."""
        taking = None if batch.ranges is None else {one.table for one in batch.ranges}
        for entry in entries:
            for file in entry.files:
                if file.table is not None and (taking is None or file.table in taking):
                    self._keep(file.table, file.version)
        for shown in batch.shapes:
            self._store.store_table_schema(shown.schema, shown.from_lsn)

    def _keep(self, table: TableId, number: int) -> None:
        if (table, number) in self._kept:
            return
        version = self._log.version(table, number)
        known = self._store.get_table_schema(table, version.from_lsn)
        if known is None or not _same_shape(known.schema, version.schema):
            self._store.store_table_schema(version.schema, version.from_lsn)
            # What the log can no longer bring, nobody will ask for.
            self._store.prune_table_schemas({table: self._log.start()})
        self._kept.add((table, number))


def _same_shape(one: TableSchema, other: TableSchema) -> bool:
    """Whether changes look the same under both; where the rows lie, and how many there are, is of no interest."""
    return (one.name, one.columns, one.primary_key, one.identity, one.identity_columns) == (
        other.name,
        other.columns,
        other.primary_key,
        other.identity,
        other.identity_columns,
    )
