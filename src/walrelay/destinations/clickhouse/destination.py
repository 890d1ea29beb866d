"""Tables in a database of ClickHouse's: copies take their place in one step, changes keep them current."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Self

from psycopg import sql

from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.config.settings import MiB, duration
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Batching, Capabilities, SparkNeeds
from walrelay.destinations.clickhouse.apply import Limits, Options
from walrelay.destinations.clickhouse.client import Address, Server, client_module
from walrelay.destinations.clickhouse.dialect import DIALECT
from walrelay.destinations.clickhouse.identity import database_id
from walrelay.destinations.clickhouse.maintenance import LOOK_EVERY
from walrelay.destinations.clickhouse.preflight import examine
from walrelay.destinations.clickhouse.progress import TABLE as PROGRESS
from walrelay.destinations.clickhouse.row_text import treated
from walrelay.destinations.clickhouse.run import Run
from walrelay.destinations.clickhouse.values import WIDE
from walrelay.destinations.clickhouse.verify import ClickHouseLook
from walrelay.destinations.urls import options_in, yes_or_no
from walrelay.destinations.verifying import Look
from walrelay.errors import NotVerifiableError, OtherDestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import Column, TableSchema

BATCHING = Batching(every=timedelta(seconds=1), bytes=64 * MiB, piece_bytes=32 * MiB)
"""Each batch makes a part of a table, which ClickHouse merges with others: more often than once a second it asks to
wait."""
SPARK = SparkNeeds(settings={"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"})

MAINTAIN = "maintain_every"
"""An option: how often it is looked whether tables hold much that no reader needs."""


def _every(said: str | None) -> timedelta | None:
    if said is None:
        return LOOK_EVERY
    return None if said == "never" else duration(MAINTAIN, said)


class ClickHouseDestination(SimpleDestination):
    """A database of a ClickHouse server. A view under each table's name shows its current rows; what is behind it keeps
    versions of rows, of which the last counts, so that changes which come again change nothing."""

    name = "clickhouse"
    dialect = DIALECT

    def __init__(self, url: str, *, limits: Limits | None = None) -> None:
        options = options_in(url, "secure", "null_marks", "history", MAINTAIN)
        self.address = Address.parse(url, secure=yes_or_no("secure", options.get("secure", "no")))
        self._options = Options(
            yes_or_no("null_marks", options.get("null_marks", "yes")),
            yes_or_no("history", options.get("history", "no")),
            _every(options.get(MAINTAIN)),
        )
        self._limits = limits or Limits()
        self.capabilities = Capabilities(
            kind="tables",
            takes_changes=True,
            lane="frames",
            # To a server that is far away files go compressed, as those do that are kept.
            keeps_files=not self.address.is_near,
            keeps_progress=True,
            batching=BATCHING,
            spark=SPARK,
        )
        self._id: str | None = None
        self._years = WIDE
        self._server: Server | None = None
        self._started: Run | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        return cls(url)

    def __repr__(self) -> str:
        return f"ClickHouseDestination({self.address})"

    def startup(self, context: DestinationContext) -> None:
        client_module()
        self._server = Server(self.address)
        try:
            able = examine(self._server)
            self._id = database_id(self._server)
            if context.expected is not None and context.expected.id != self._id:
                raise OtherDestinationError(
                    f"{self.address} is another database than the one this pipeline writes to,"
                    f" {context.expected.place}",
                    hint="Give that one; or a state of its own to this pipeline.",
                )
            self._started = Run(self._server, able, context, self._options, self._limits)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        started, self._started = self._started, None
        server, self._server = self._server, None
        if server is not None:
            try:
                if started is not None:
                    started.close()
            finally:
                server.close()

    @property
    def _run(self) -> Run:
        assert self._started is not None, "startup() comes first"
        return self._started

    def identity(self) -> Identity | None:
        return None if self._id is None else Identity(self._id, str(self.address))

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied; the copy takes the table's place, and until then the old rows stay readable."""
        self._run.forget(schema)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        treated = self._run.copy(schema, rows)
        return WriteResult(durable=True, rows=rows.rows_total, treated={schema.id: treated} if treated else {})

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Each table's changes at once, several tables side by side; then the position that they have reached."""
        taken = self._run.take_all(batch)
        treated = {table: one.treated for table, one in taken if one.treated}
        return WriteResult(durable=True, rows=sum(one.changes for _, one in taken), treated=treated)

    @contextmanager
    def looking(self, context: DestinationContext, *, writing: bool = False) -> Iterator[Look]:
        """As `Verifiable` wants it: on a connection of its own, beside whoever writes."""
        client_module()
        server = Server(self.address)
        try:
            able = examine(server)
            if not server.rows(f"EXISTS TABLE {server.place(PROGRESS)}")[0][0]:
                raise NotVerifiableError(
                    f"no pipeline has written to {self.address} yet",
                    hint="Give the destination that `walrelay replicate` writes to.",
                )
            look = ClickHouseLook(server, context, able.years)
            self._years = able.years
            try:
                yield look
            finally:
                look.close()
        finally:
            server.close()

    def unheld(self, column: Column) -> sql.Composable | None:
        """For `verify`: SQL, for the source, for «a value that policy treats here»."""
        return treated(column, self._years)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table holds every change; None after a copy, until changes came. Of all tables together there
        is no word: each has its own."""
        return None if table is None else self._run.applied(table)
