"""Which tables of a warehouse are this run's, where they stand, and how far they are.

Only this run writes to them, so what was read once holds until it writes; a batch's transaction looks itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.keepers import refuse_stranger
from walrelay.destinations.warehouse.names import refuse_own, refuse_twins, state_place
from walrelay.destinations.warehouse.service import Warehouse
from walrelay.destinations.warehouse.state import Kept, TableState
from walrelay.errors import DestinationError, NameClashError, OtherSourceError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema


class Tables:
    """Of one source, in one warehouse."""

    def __init__(self, warehouse: Warehouse, context: DestinationContext) -> None:
        self._warehouse = warehouse
        self._context = context
        self.source = context.source_id or ""
        self._kept = {one.state.table: one for one in warehouse.kept(self.source)}
        self._finish()

    def _finish(self) -> None:
        """What a run has left half done: tables on their way, and two that say that they stand in one place."""
        for table, one in list(self._kept.items()):
            if one.state.moving:
                self._move(table, one.state.moving)
        places = Counter(one.state.place for one in self._kept.values())
        twins = [table for table, one in self._kept.items() if places[one.state.place] > 1]
        names = self._context.names(twins) if twins else None
        for table in twins:
            if names is not None and table not in names:
                self._disown(table)

    def kept(self, table: TableId) -> Kept | None:
        return self._kept.get(table)

    def state_place(self, table: TableId) -> str:
        return state_place(self.source, table)

    def reread(self, table: TableId) -> Kept | None:
        """Before a batch: another run of this pipeline may have taken some."""
        found = self._warehouse.read(self.source, table)
        if found is None:
            self._kept.pop(table, None)
        else:
            self._kept[table] = found
        return found

    # -------------------------------------------------------------------------------------------------------- refusals

    def refuse(self, schema: TableSchema, *, copying: bool) -> None:
        """Raise for a table that cannot be here, or is somebody else's."""
        if not schema.columns:
            raise DestinationError(
                f"every table of {self._warehouse.title} has columns, and {schema.name} has none",
                hint="Leave it out of the publication.",
            )
        refuse_twins(schema, self._warehouse.told_apart, self._warehouse.title)
        self.place(schema)
        self._refuse_stranger(schema, copying=copying)

    def _refuse_stranger(self, schema: TableSchema, *, copying: bool) -> None:
        kept = self._kept.get(schema.id)
        keeper = "" if kept is None else kept.state.pipeline
        refuse_stranger(
            schema.id, schema.name, keeper, self._context,
            copying=copying, place=self._warehouse.shown, kind="place",
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------------------- places

    def place(self, schema: TableSchema) -> str:
        """Where the table is to stand; raises when it cannot, or what stands there is not ours."""
        wanted = self._warehouse.place(schema.name)
        refuse_own(wanted, schema.name)
        self._warehouse.refuse_name(wanted, schema.name)
        holder = self._holder(wanted)
        if holder is not None and holder != schema.id:
            self._refuse_twin(schema, wanted, holder)
        if holder is None and self._warehouse.columns(wanted) is not None:
            self._refuse_other(schema, wanted)
        return wanted

    def _holder(self, place: str) -> TableId | None:
        return next((table for table, one in self._kept.items() if one.state.place == place), None)

    def _refuse_twin(self, schema: TableSchema, wanted: str, holder: TableId) -> None:
        """Two tables of the source that are there now, and would have one name here."""
        name = (self._context.names([holder]) or {}).get(holder)
        if name is not None and name != schema.name and self._warehouse.place(name) == wanted:
            raise NameClashError(
                f"{schema.name} and {name} would both be called {wanted} in {self._warehouse.shown}",
                hint="Rename one of them, or leave it out of the publication.",
            )

    def _refuse_other(self, schema: TableSchema, wanted: str) -> None:
        source = self._warehouse.owners([wanted]).get(wanted)
        if source is None:
            raise NameClashError(
                f"{wanted} in {self._warehouse.shown} is a table already, and walrelay has not made it",
                hint="Move it away, or choose another place.",
            )
        if source != self.source:
            raise OtherSourceError(
                f"{wanted} in {self._warehouse.shown} has rows of another source ({source}); {schema.name} is of"
                f" {self._context.source_name} ({self.source})",
                hint="Choose another place; or, if nobody wants that copy any more, drop that table.",
            )

    def follow_name(self, schema: TableSchema) -> str:
        """Move the table to where its name says, if it is there at all; the place."""
        kept, wanted = self._kept.get(schema.id), self.place(schema)
        self._make_room(schema, wanted)
        if kept is not None and kept.state.place != wanted:
            self._move(schema.id, wanted)
        return wanted

    def _make_room(self, schema: TableSchema, wanted: str) -> None:
        """Free the place from another table of ours: one that the source has dropped is replaced; one that has lost
        its name to this one gets its own when the log tells, and waits aside."""
        other = self._holder(wanted)
        if other is None or other == schema.id:
            return
        names = self._context.names([other])
        if names is not None and other not in names and schema.id not in self._kept:
            self._take_over(other, schema)
            return
        aside = self._warehouse.place(TableName(schema.name.schema, f"{schema.name.name} {other}"))
        self._move(other, aside)

    def _take_over(self, other: TableId, schema: TableSchema) -> None:
        """The place of a table that is gone from the source. Between the two statements both say that it is theirs."""
        self.claim(replace(self._kept[other].state, table=schema.id, copy="", ledger=None))
        self._disown(other)

    def _disown(self, table: TableId) -> None:
        self._warehouse.disown(self.source, table)
        del self._kept[table]

    def _move(self, table: TableId, wanted: str) -> None:
        """Written down first: a run that dies in between leaves a table that is at one of the two places."""
        kept = self._kept[table]
        if kept.state.moving != wanted:
            kept = self.put(replace(kept.state, moving=wanted))
        if self._warehouse.columns(wanted) is None and self._warehouse.columns(kept.state.place) is not None:
            self._warehouse.move(kept.state.place, wanted)
        self.put(replace(kept.state, place=wanted, moving=""))

    # ----------------------------------------------------------------------------------------------------------- state

    def put(self, state: TableState) -> Kept:
        self._warehouse.put(state)
        kept = Kept(state, self._kept[state.table].applied)
        self._kept[state.table] = kept
        return kept

    def claim(self, state: TableState) -> None:
        """Of a table that is to be made: a run that dies between the two finds that it is ours. One that is known is
        ours already, and keeps what is known of it until it was replaced."""
        if state.table not in self._kept:
            self._warehouse.begin(state, None)
            self._kept[state.table] = Kept(state, None)

    def begin(self, state: TableState) -> Kept:
        """Of a table that was just made."""
        self._warehouse.begin(state, Lsn(0))
        kept = Kept(state, Lsn(0))
        self._kept[state.table] = kept
        return kept

    def applied(self, table: TableId, to: Lsn) -> None:
        self._kept[table] = replace(self._kept[table], applied=to)

    def forget(self, table: TableId) -> None:
        kept = self._kept.get(table)
        if kept is not None:
            self._warehouse.forget(self.source, table)
            self._kept[table] = replace(kept, applied=None)
