"""The destination contract, and what a destination is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from walrelay.changes.batch import EventBatch
from walrelay.changes.dialect import Dialect, plain_dialect
from walrelay.changes.rows import TableRows
from walrelay.config.settings import CopySettings
from walrelay.decode.base import ARROW
from walrelay.destinations.capabilities import Capabilities
from walrelay.errors import DestinationError, NotDurableError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.stores.base import DestinationStore
from walrelay.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of a write. Only `durable` moves progress: it is safe from a crash of anything.

    A batch of changes may also be `accepted`: the pipeline then goes on with the next ones, as many at a time as
    `Capabilities.in_flight` says, and moves progress when `later` gives a result that is durable. When one fails, those
    behind it must fail too, since they build on it; everything since the last durable one comes again.
    """

    durable: bool
    rows: int = 0
    treated: Mapping[TableId, Counter[Special]] = field(default_factory=dict)
    """Values that the destination itself could not hold, treated by policy. (Of a copy the tasks count theirs.)"""

    later: Future[WriteResult] | None = field(default=None, compare=False)

    @classmethod
    def accepted(cls, later: Future[WriteResult]) -> WriteResult:
        return cls(durable=False, later=later)

    def settled(self) -> WriteResult:
        """What became of it in the end; waits."""
        return self if self.later is None else self.later.result().settled()

    def insist(self, what: str) -> WriteResult:
        """Itself, when it is durable."""
        if not self.durable:
            raise NotDurableError(f"the destination took {what} but did not make that durable")
        return self


@dataclass(frozen=True, slots=True)
class Identity:
    """Which one a destination is: an id that it keeps for itself, and where it stands, for people."""

    id: str
    place: str


def _no_spark() -> SparkSession:
    raise DestinationError(
        "this destination was given no Spark session", hint="Let a Pipeline start it, which gives it one."
    )


@dataclass(frozen=True)
class DestinationContext:
    """What a destination may use while it runs."""

    pipeline_id: str
    settings: CopySettings
    spark: Callable[[], SparkSession] = _no_spark
    """The pipeline's Spark session. The first call starts it, which takes seconds."""
    store: DestinationStore = field(default_factory=MemoryStore, repr=False)
    """The shapes that tables have had, by LSN, and a ledger for what the destination has of each."""
    notify: Callable[[str], None] = lambda _message: None
    """Tell the user something that takes time, e.g. that a file is held by somebody else."""
    others_wait: bool = True
    """Whether other tables are kept current meanwhile, so that one which takes long should let them in between. Not in
    mode `copy`."""
    stopping: Event = field(default_factory=Event)
    """Set when the pipeline is to end: what takes long, and is begun anew by the next run anyway, may be given up."""
    mode: str = "copy"
    source_id: str | None = None
    """Which database the rows come from (`walrelay.postgres.identity`); None where that is not known."""
    source_name: str = ""
    """Where that database is, for people."""
    pipeline_name: str | None = None
    """Of the pipeline that keeps tables current, unlike that of any other one; None in mode `copy`."""
    tables: Mapping[TableId, TableName] = field(default_factory=dict)
    """The tables that are there now; others may join."""
    names: Callable[[Collection[TableId]], Mapping[TableId, TableName] | None] = lambda _tables: None
    """What the source calls these tables now: without those that are gone; None when it cannot be asked."""
    expected: Identity | None = None
    """What `identity()` said when the pipeline last ran. A destination that keeps an id refuses, in `startup`, to be
    taken for another one."""


@runtime_checkable
class Destination(Protocol):
    """Where rows and changes go. What a pipeline relies on, and `walrelay.testing.destination_contract` tests:

    - **Again.** Every call may be repeated after a failure, wholly or as part of a longer range, and then leads to the
      same state. Changes up to `applied_lsn` are not taken twice.
    - **Together.** The changes of a table and the position that they reach are one transaction; with
      `atomic_across_tables` those of all tables in a batch. A reader sees a table's old copy or the whole new one.
    - **Its word wins.** After a restart what `applied_lsn` says counts, whatever the pipeline has recorded; None after
      a copy, until changes came. A copy made anew forgets it (`drop_table_for_copy`), an older batch does not take it
      back.
    - **Order.** Batches come in order and end on a commit. A table is written by one call at a time; calls for
      different tables may come from several threads.
    - **Shapes.** A table has the columns of the last shape in a batch, followed by attribute number. Who cannot know
      what older rows hold raises `CopyAgainError`, and is given a copy.
    - **Values** are held exactly or treated by policy and counted (`WriteResult.treated`); a key is never treated.
      A value that was not sent again is the one that the row had.
    - **Errors** are those of `walrelay.errors` and carry no row value. One that names its table (`context["table"]`, or
      `context["table_id"]`) stops that table alone; what is `retryable` is tried again.
    - **Durable** is said only of what no crash can take away.
    """

    name: str
    capabilities: Capabilities
    dialect: Dialect
    """What it calls Postgres's types, and what these can hold: decides how values are decoded for it."""

    def startup(self, context: DestinationContext) -> None:
        """Make sure that writing will work, or say why not, before anything is read."""

    def shutdown(self) -> None:
        """Let go of everything. Also called after a failure."""

    def staging_root(self) -> Path | None:
        """Where copies for it should land, when it matters (near its own files); else None."""

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied to this table, before it is copied anew. Idempotent. Where `write_table_rows`
        replaces a table atomically, the old rows stay readable until then."""

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        """Put the table's copy in place of whatever was there. No rows still makes a table."""

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Take a range of the change log, which ends on a commit. May come again after a failure."""

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """The resumption state that the destination itself keeps, if it does."""


class SimpleDestination:
    """The parts of the contract that a destination without files, locks or state of its own need not think about."""

    capabilities = Capabilities()
    dialect: Dialect = plain_dialect(ARROW)

    def startup(self, context: DestinationContext) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def staging_root(self) -> Path | None:
        return None

    def identity(self) -> Identity | None:
        """Which one it is, once it was started; None when it keeps no id. Optional: not part of the contract."""
        return None

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        pass

    def write_events(self, batch: EventBatch) -> WriteResult:
        raise DestinationError(f"{type(self).__name__} takes no changes", hint="Use mode copy with it.")

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        return None
