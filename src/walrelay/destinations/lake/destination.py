"""A directory of tables that Spark writes: what is the same for every format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import DIALECT
from walrelay.config.settings import duration
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities, SparkNeeds
from walrelay.destinations.lake.batching import LAKE_BATCHING
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.lake.identity import lake_id
from walrelay.destinations.lake.maintenance import MAINTAIN_EVERY
from walrelay.destinations.lake.run import LakeRun
from walrelay.errors import OtherDestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

OWN = "_walrelay"
"""The lake's directory for what is ours."""
MAINTAIN = "maintain_every"
"""An option of every lake's URL."""


def maintain_every(options: Mapping[str, str]) -> timedelta | None:
    """What a URL says."""
    said = options.get(MAINTAIN)
    if said is None:
        return MAINTAIN_EVERY
    return None if said == "never" else duration(MAINTAIN, said)


class LakeDestination(SimpleDestination):
    """At a local path. Each table's commit of changes carries the position reached: a batch that comes again writes
    nothing."""

    dialect = DIALECT

    def __init__(self, path: str | Path, spark: SparkNeeds, maintain_every: timedelta | None) -> None:
        self.capabilities = Capabilities(
            kind="tables",
            takes_changes=True,
            lane="frames",
            keeps_files=True,
            keeps_progress=True,
            batching=LAKE_BATCHING,
            spark=spark,
        )
        self.path = Path(path).absolute()
        self._maintain_every = maintain_every
        self._id: str | None = None
        self._started: LakeRun | None = None

    @abstractmethod
    def _open(self, context: DestinationContext) -> LakeFormat:
        """The tables that are there."""

    def startup(self, context: DestinationContext) -> None:
        self._id = lake_id(self.path / OWN)
        if context.expected is not None and context.expected.id != self._id:
            raise OtherDestinationError(
                f"{self.path} is another lake than the one this pipeline writes to, {context.expected.place}",
                hint="Give that one; or a state of its own to this pipeline.",
            )
        tables = self._open(context)
        self._started = LakeRun(str(self.path), self.path / OWN, tables, context, self._maintain_every)

    def shutdown(self) -> None:
        self._started = None

    @property
    def _run(self) -> LakeRun:
        assert self._started is not None, "startup() comes first"
        return self._started

    def identity(self) -> Identity | None:
        return None if self._id is None else Identity(self._id, str(self.path))

    def staging_root(self) -> Path | None:
        return self.path / OWN / "staging"

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied; the copy replaces the table, and until then the old rows stay readable."""
        self._run.forget(schema)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        self._run.adopt(schema, rows)
        return WriteResult(durable=True, rows=rows.rows_total)

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Each table's changes with the position reached, in one commit a table; several tables side by side."""
        taken = self._run.take_all(batch)
        treated = {table: one.treated for table, one in taken if one.treated}
        return WriteResult(durable=True, rows=sum(one.changes for _, one in taken), treated=treated)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table holds every change; None after a copy, until changes came. Of all tables together there
        is no word: each has its own."""
        return None if table is None else self._run.applied(table)
