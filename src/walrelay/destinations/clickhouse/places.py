"""Which tables of the database are this run's, under which names they stand, and what they say of themselves.

Only this run writes to them, so what was read once holds until it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import literal
from walrelay.destinations.clickhouse.facts import MARK, Facts, Stored, new_epoch
from walrelay.destinations.clickhouse.layout import create_view
from walrelay.destinations.clickhouse.names import view_name
from walrelay.destinations.keepers import refuse_stranger
from walrelay.errors import NameClashError, OtherSourceError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Held:
    """A table of ours, and the name of its view."""

    name: str
    facts: Facts


class Places:
    """Of one source, in one database."""

    def __init__(self, server: Server, context: DestinationContext, *, marks: bool) -> None:
        self._server = server
        self._context = context
        self._marks = marks
        self._source = context.source_id or ""
        self._held: dict[TableId, Held] = {}
        for name, comment in self._ours():
            facts = Facts.parse(comment)
            if facts.source == self._source:
                self._held[facts.table] = Held(name, facts)

    def _ours(self) -> list[tuple[str, str]]:
        database = literal(self._server.address.database)
        found = self._server.rows(
            f"SELECT name, comment FROM system.tables WHERE database = {database} AND startsWith(comment,"
            f" {literal(MARK)})",
            doing="looking for tables",
        )
        return [(name.decode(), comment.decode()) for name, comment in found]

    def ids(self) -> list[TableId]:
        return list(self._held)

    def storages(self) -> set[str]:
        """Tables behind views, whosever they are."""
        return {Facts.parse(comment).storage for _, comment in self._ours()}

    def held(self, table: TableId) -> Held | None:
        return self._held.get(table)

    # ------------------------------------------------------------------------------------------------------- owners

    def refuse_stranger(self, schema: TableSchema, *, copying: bool) -> None:
        """Raise when another pipeline keeps the table current. One that begins anew, under the same id, takes over the
        tables that it copies."""
        held = self._held.get(schema.id)
        keeper = "" if held is None else held.facts.pipeline
        refuse_stranger(
            schema.id, schema.name, keeper, self._context,
            copying=copying, place=str(self._server.address), kind="database",
        )  # fmt: skip

    def refuse_taken(self, schema: TableSchema) -> str:
        """The name of the table's view; raises when what stands there is not ours."""
        wanted = view_name(schema.name)
        if any(one.name == wanted for one in self._held.values()):
            return wanted
        found = self._server.rows(
            f"SELECT comment FROM system.tables WHERE database = {literal(self._server.address.database)}"
            f" AND name = {literal(wanted)}"
        )
        if not found:
            return wanted
        comment, context = found[0][0].decode(), {"table": str(schema.name), "table_id": schema.id}
        if not comment.startswith(MARK):
            raise NameClashError(
                f"{wanted} is in {self._server.address} already, and walrelay has not made it",
                hint="Rename it, or choose another database.",
                context=context,
            )
        other = Facts.parse(comment).source
        raise OtherSourceError(
            f"{schema.name} in {self._server.address} has rows of another source ({other}); this one is"
            f" {self._context.source_name} ({self._source})",
            hint=f"Choose another database; or, if nobody wants that copy any more, drop it: DROP VIEW {wanted}",
            context=context,
        )

    # -------------------------------------------------------------------------------------------------------- names

    def follow_name(self, schema: TableSchema) -> str:
        """Give the table's view the name that it is to have, and free that from another of ours."""
        wanted, held = self.refuse_taken(schema), self._held.get(schema.id)
        self._make_room(schema, wanted)
        if held is not None and held.name != wanted:
            self._move(schema.id, wanted)
        return wanted

    def _make_room(self, schema: TableSchema, wanted: str) -> None:
        """One that the source has dropped leaves its name to a new table; one that has lost its name to this one gets
        its own when the log tells, and waits aside."""
        other = next((table for table, one in self._held.items() if one.name == wanted), None)
        if other is None or other == schema.id:
            return
        names = self._context.names([other])
        if names is not None and other not in names and schema.id not in self._held:
            del self._held[other]  # its view is replaced by the new table's
            return
        self._move(other, view_name(TableName(schema.name.schema, f"{schema.name.name} {other}")))

    def _move(self, table: TableId, wanted: str) -> None:
        held = self._held[table]
        self._server.command(
            f"RENAME TABLE {self._server.place(held.name)} TO {self._server.place(wanted)}", doing="renaming a table"
        )
        self._held[table] = replace(held, name=wanted)

    # -------------------------------------------------------------------------------------------------------- facts

    def facts_for(
        self, schema: TableSchema, storage: str, columns: tuple[Stored, ...], key: tuple[str, ...], copied: Lsn | None
    ) -> Facts:
        """Of a table that is made now."""
        return Facts(
            schema.id,
            self._source,
            self._context.pipeline_name or "",
            storage,
            columns,
            key,
            (copied or Lsn(0), 0),
            copied,
            new_epoch(),
            len(columns),
        )

    def show(self, name: str, facts: Facts) -> Held:
        """Let the view show this from now on, in one step."""
        self._server.command(create_view(self._server, name, facts, marks=self._marks), doing=f"showing {name}")
        self._held[facts.table] = Held(name, facts)
        return self._held[facts.table]

    def renew(self, table: TableId, epoch: str) -> None:
        """The table shows what it showed, and nothing is known of how far it is."""
        held = self._held[table]
        self.show(held.name, replace(held.facts, epoch=epoch))
