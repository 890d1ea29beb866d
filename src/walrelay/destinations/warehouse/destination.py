"""A warehouse's tables as a destination: what is the same for every service."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import ClassVar
from uuid import uuid4

from psycopg import sql

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.config.settings import MiB
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Batching, Capabilities
from walrelay.destinations.format import readable
from walrelay.destinations.warehouse.positions import Positions
from walrelay.destinations.warehouse.run import WarehouseRun
from walrelay.destinations.warehouse.service import Warehouse
from walrelay.destinations.warehouse.verify import WarehouseLook, unheld
from walrelay.errors import OtherDestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import Column, TableSchema

WAREHOUSE_BATCHING = Batching(every=timedelta(seconds=60), bytes=512 * MiB, piece_bytes=256 * MiB)
"""Each batch is some jobs that are counted or a warehouse that is awake, and each is paid for what it looks at."""


class WarehouseDestination(SimpleDestination):
    """Each table's transaction carries the position reached: a batch that comes again writes nothing."""

    capabilities = Capabilities(
        kind="tables", takes_changes=True, lane="frames", keeps_progress=True, batching=WAREHOUSE_BATCHING
    )

    array_nulls: ClassVar[bool]
    """Whether its arrays can hold NULLs, and be NULL."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._warehouse: Warehouse | None = None
        self._started: WarehouseRun | None = None

    @abstractmethod
    def _open(self, context: DestinationContext) -> Warehouse:
        """A connection, or what makes them."""

    def startup(self, context: DestinationContext) -> None:
        warehouse = self._open(context)
        try:
            warehouse.check()
            self._id = self._identified(warehouse, context)
            self._started = WarehouseRun(warehouse, context)
        except BaseException:
            warehouse.close()
            raise
        self._warehouse = warehouse

    @staticmethod
    def _identified(warehouse: Warehouse, context: DestinationContext) -> str:
        found = warehouse.identity()
        if found is not None:
            readable(found, warehouse.shown)
        if context.expected is not None and context.expected.id != found:
            raise OtherDestinationError(
                f"{warehouse.shown} is another place than the one this pipeline writes to, {context.expected.place}",
                hint="Give that one; or a state of its own to this pipeline.",
            )
        return found or warehouse.found(uuid4().hex)

    def shutdown(self) -> None:
        if self._started is not None:
            self._started.close()
        if self._warehouse is not None:
            self._warehouse.close()
        self._started = self._warehouse = None

    @property
    def _run(self) -> WarehouseRun:
        assert self._started is not None, "startup() comes first"
        return self._started

    def identity(self) -> Identity | None:
        return None if self._id is None else Identity(self._id, self.place)

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for people."""

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied; the copy replaces the table, and until then the old rows stay readable."""
        self._run.forget(schema)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        taken = self._run.replace(schema, rows)
        return WriteResult(durable=True, rows=rows.rows_total, treated={schema.id: taken.treated})

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Each table's changes with the position reached, in one transaction a table; several tables side by side."""
        taken = self._run.take_all(batch)
        treated = {table: one.treated for table, one in taken if one.treated}
        return WriteResult(durable=True, rows=sum(one.changes for _, one in taken), treated=treated)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table holds every change; None after a copy, until changes came. Of all tables together there
        is no word: each has its own."""
        return None if table is None else self._run.applied(table)

    # ---------------------------------------------------------------------------------------------------------- verify

    @contextmanager
    def looking(self, context: DestinationContext, *, writing: bool = False) -> Iterator[WarehouseLook]:
        """Its rows as they are now; also while a pipeline elsewhere writes to it."""
        warehouse = self._open(context)
        try:
            with warehouse.looking() as reader:
                yield WarehouseLook(warehouse, reader, context.source_id or "", Positions(context.store))
        finally:
            warehouse.close()

    def unheld(self, column: Column) -> sql.Composable | None:
        return unheld(column, array_nulls=self.array_nulls)
