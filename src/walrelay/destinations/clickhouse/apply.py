"""Takes one table's part of a batch: its columns first, then its changes, which readers see all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from walrelay.changes.shapes import Wanted, match_held
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.collapsed import Collapsed
from walrelay.destinations.clickhouse.dialect import DIALECT, declared
from walrelay.destinations.clickhouse.facts import Facts, altered, fresh_columns, key_of
from walrelay.destinations.clickhouse.history import History
from walrelay.destinations.clickhouse.incoming import Incoming
from walrelay.destinations.clickhouse.layout import column_definitions, create_storage
from walrelay.destinations.clickhouse.load import BLOCK_BYTES, Load
from walrelay.destinations.clickhouse.maintenance import LEAST, LOOK_EVERY
from walrelay.destinations.clickhouse.names import OwnNames, refuse_names
from walrelay.destinations.clickhouse.places import Held, Places
from walrelay.destinations.clickhouse.quick import QUICK_ROWS, quickly_collapsed
from walrelay.destinations.clickhouse.storages import Storages
from walrelay.destinations.clickhouse.values import Fit, Years
from walrelay.errors import CopyAgainError, DestinationError
from walrelay.failpoints import hit
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import Special

if TYPE_CHECKING:
    from walrelay.destinations.clickhouse.frame_lane import FrameLane


@dataclass(frozen=True, slots=True)
class Limits:
    """What is done in which way; tests have others."""

    quick_rows: int = QUICK_ROWS
    block_bytes: int = BLOCK_BYTES
    unneeded_rows: int = LEAST
    """Of a table that is rewritten without them."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a URL says beside the place."""

    marks: bool = True
    """Whether views show which arrays are NULL."""
    history: bool = False
    """Whether every change is kept."""
    look_every: timedelta | None = LOOK_EVERY
    """How often it is looked for what no reader needs any more."""


@dataclass(frozen=True)
class Taken:
    """What became of a table's changes."""

    changes: int = 0
    treated: Counter[Special] = field(default_factory=Counter)


def refuse_bare(schema: TableSchema) -> None:
    if not schema.columns:
        raise DestinationError(
            f"every table of ClickHouse has columns, and {schema.name} has none",
            hint="Leave it out of the publication.",
        )


class Application:
    """Of one run. A table is written by one thread at a time."""

    def __init__(
        self,
        server: Server,
        places: Places,
        storages: Storages,
        own: OwnNames,
        context: DestinationContext,
        years: Years,
        limits: Limits,
        history: History | None,
        *,
        marks: bool,
    ) -> None:
        self._history = history
        self._server = server
        self._places = places
        self._storages = storages
        self._own = own
        self._context = context
        self._years = years
        self._limits = limits
        self._marks = marks
        self._lane: FrameLane | None = None

    def take(self, storage: Storage, part: TableChanges, applied: Lsn | None) -> Taken:
        """What is new of the changes; `applied` is how far the table is."""
        if self._places.held(part.schema.id) is not None:
            self._places.refuse_stranger(part.schema, copying=False)
        if applied is not None and applied >= part.to:
            return Taken()
        part = part.since(applied or Lsn(0))
        with self._collapsed(storage, part) as collapsed:
            if not collapsed.changes:
                return Taken()  # the files' changes are not of this batch; nor is the shape that they have
            held = self.follow([version for version, _ in part.files])
            if self._history is not None:
                self._history.take(part)
            fit = Fit(self._years, self._context.settings.special_values, collapsed.treated)
            if collapsed.truncated:
                self._replace(held, part, collapsed, fit)
            else:
                incoming = Incoming(part.schema, held.facts, collapsed, fit)
                hit("destination.before_commit")
                Load(self._server, incoming, self._own, visible=True, block_bytes=self._limits.block_bytes).run()
            hit("destination.committed")
            return Taken(collapsed.changes, collapsed.treated)

    @contextmanager
    def _collapsed(self, storage: Storage, part: TableChanges) -> Iterator[Collapsed]:
        found = quickly_collapsed(part, self._context.settings.special_values, self._limits.quick_rows)
        if found is not None:
            yield found
            return
        from walrelay.destinations.clickhouse.frame_lane import FrameLane  # which loads Spark

        self._lane = self._lane or FrameLane(self._context)
        with self._lane.collapsed(storage, part) as collapsed:
            yield collapsed

    def _replace(self, held: Held, part: TableChanges, collapsed: Collapsed, fit: Fit) -> None:
        """After a truncate: what came since, in a new table behind the view. Readers see all rows that were there, or
        none of them and all that came since."""
        schema = part.schema
        facts = replace(held.facts, storage=self._own.storage(schema.id), since=part.to)
        self._server.command(create_storage(self._server, facts), doing=f"emptying {schema.name}")
        Load(self._server, Incoming(schema, facts, collapsed, fit), self._own, visible=False).run()
        hit("destination.before_commit")
        self._places.show(held.name, facts)
        self._storages.leave(held.facts.storage)

    # ------------------------------------------------------------------------------------------------------- shapes

    def follow(self, versions: list[SchemaVersion]) -> Held:
        """The table with the columns and the name of the last of these versions, each of which it goes through."""
        last = versions[-1]
        schema, shape = last.schema, (last.from_lsn, last.version)
        refuse_bare(schema)
        refuse_names(schema, marks=self._marks)
        held = self._places.held(schema.id)
        if held is None:
            return self._create(last)
        if shape <= held.facts.shape:
            return held
        has_rows = self._storages.has_rows(held.facts.storage)
        self._refuse_guesses(held.facts, versions, has_rows=has_rows)
        name = self._places.follow_name(schema)
        return self._alter(name, held.facts, last, has_rows=has_rows)

    def _create(self, version: SchemaVersion) -> Held:
        """A table that changes alone make."""
        schema = version.schema
        columns = fresh_columns(schema)
        facts = self._places.facts_for(schema, self._own.storage(schema.id), columns, key_of(schema, columns), None)
        facts = replace(facts, shape=(version.from_lsn, version.version))
        name = self._places.follow_name(schema)
        self._server.command(create_storage(self._server, facts), doing=f"creating {schema.name}")
        return self._places.show(name, facts)

    def _refuse_guesses(self, facts: Facts, versions: list[SchemaVersion], *, has_rows: bool) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        if facts.copied is None:
            return
        columns = facts.held
        for version in versions:
            wanted = match_held(version.schema.columns, columns, DIALECT)
            unknown = [one.column.name for one in wanted if not one.is_told]
            if has_rows and (unknown or version.doubt):
                why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
                raise CopyAgainError(f"{version.schema.name} was altered: {why}")
            columns = tuple(one.becomes() for one in wanted)
            has_rows = True  # perhaps: changes of this batch have brought some

    def _alter(self, name: str, facts: Facts, version: SchemaVersion, *, has_rows: bool) -> Held:
        """Columns come first, then the view shows them, and then those go that nobody sees any more."""
        schema = version.schema
        wanted = match_held(schema.columns, facts.held, DIALECT)
        columns, last = altered(facts, wanted)
        key = key_of(schema, columns)
        now = replace(
            facts, columns=columns, last=last, key=key, shape=(version.from_lsn, version.version),
            hashed=facts.hashed and [one.name for one in columns] == [one.name for one in facts.columns],
        )  # fmt: skip
        before = {one.name: one.held.type for one in facts.columns}
        retyped = {one.name for one in columns if one.name in before and before[one.name] != one.held.type}
        if key != facts.key or retyped & set(key):
            return self._rekey(name, now, schema, has_rows=has_rows)
        self._add(now, facts, wanted, retyped, schema)
        hit("destination.ddl")
        held = self._places.show(name, now)
        kept = {one.name for one in columns}
        gone = [one for one in facts.columns if one.name not in kept]
        self._storages.drop_columns(facts.storage, [x for one in gone for x in _both(one.name, one.marked)])
        return held

    def _add(self, now: Facts, facts: Facts, wanted: list[Wanted], retyped: set[str], schema: TableSchema) -> None:
        there = {one.name for one in facts.columns}
        steps = []
        for one in now.columns:
            if one.name not in there:
                # An attempt that was interrupted may have left it, with another type.
                steps += [f"DROP COLUMN IF EXISTS {x}" for x in _both(one.name, one.marked)]
                steps += [f"ADD COLUMN {x}" for x in column_definitions(one, of_key=False)]
            elif one.name in retyped:
                steps.append(f"MODIFY COLUMN {one.name} {declared(one.held.type, of_key=False)}")
        for step in steps:
            place = self._server.place(facts.storage)
            self._server.command(f"ALTER TABLE {place} {step}", doing=f"altering {schema.name}")

    def _rekey(self, name: str, now: Facts, schema: TableSchema, *, has_rows: bool) -> Held:
        """Storage is sorted by its key, and tells rows apart by it."""
        if has_rows:
            raise CopyAgainError(f"{schema.name} was altered: its rows are told apart by other columns now")
        old, now = now.storage, replace(now, storage=self._own.storage(schema.id))
        self._server.command(create_storage(self._server, now), doing=f"altering {schema.name}")
        hit("destination.ddl")
        held = self._places.show(name, now)
        self._storages.leave(old)
        return held


def _both(name: str, marked: bool) -> list[str]:
    return [name, f"{name}_null"] if marked else [name]
