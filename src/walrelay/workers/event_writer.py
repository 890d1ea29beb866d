"""How changes leave us, whoever sends them: none is left out silently, their shapes are in the store before, and only
what is durable counts."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.destinations.base import Destination, WriteResult
from walrelay.errors import WalrelayError
from walrelay.log.manifest import Entry
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.shaping.schema_changes import check_schema_changes
from walrelay.shaping.shaped_log import ShapedBatch, shaped_batch
from walrelay.shaping.shaping import Shaping
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
        self,
        log: LogReader,
        destination: Destination,
        store: PipelineStore,
        rule: QuarantineRule | None = None,
        *,
        shaping: Shaping | None = None,
        staging: Path | None = None,
    ) -> None:
        """`staging` is where changes that were shaped wait for the destination."""
        self._log = log
        self._destination = destination
        self._store = store
        self._rule = rule or QuarantineRule(store, "error")
        self._shaping = shaping or Shaping()
        self._staging = staging
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
        check_schema_changes(self._shaping, self._store, batch, entries)
        self._keep_shapes(batch, entries)
        shaped = self._shaped(batch)
        try:
            with self._own_tables(shaped):
                result = self._destination.write_events(shaped.batch)
        except BaseException:
            shaped.forget()
            raise
        if result.later is None:
            shaped.forget()
        else:
            result.later.add_done_callback(lambda _: shaped.forget())

        def landed() -> WriteResult:
            with self._own_tables(shaped):
                done = result.settled().insist(f"the changes up to {batch.to}")
            self._rule.passed(batch, quarantine)
            for treated in (done.treated, shaped.treated):
                record_changes(self._store, treated)
                for counts in treated.values():
                    self.treated.update(counts)
            return done

        return Flight(batch.ranges, batch.to, result, landed, began_at)

    def _shaped(self, batch: EventBatch) -> ShapedBatch:
        if not self._shaping:
            return ShapedBatch(batch)
        assert self._staging is not None, "where there are options of tables there is a place for what they make"
        return shaped_batch(self._shaping, batch, self._staging / f"shaped-{uuid.uuid4().hex}")

    @contextmanager
    def _own_tables(self, shaped: ShapedBatch) -> Iterator[None]:
        """A destination knows tables by other names than we do: what it says of one is said of the table's id too."""
        try:
            yield
        except WalrelayError as error:
            name = error.context.get("table")
            if shaped.directory is not None and name is not None and "table_id" not in error.context:
                found = [table for table, known in shaped.names.items() if str(known) == str(name)]
                error.context |= {"table_id": found[0]} if found else {}
            raise

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
