"""Gives a table the columns of another shape, by a ledger: a run that dies between two statements goes on where it was.

Services have no transaction around DDL. So what is to be done is written down first, in the table's state, and after
each statement how much of it is; of the one that a dead run may or may not have done, the table's own columns tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from walrelay.changes.shapes import HeldColumn, Wanted, match_held
from walrelay.destinations.warehouse.service import Warehouse
from walrelay.destinations.warehouse.state import Alteration, Kept, Ledger
from walrelay.destinations.warehouse.tables import Tables
from walrelay.errors import CopyAgainError
from walrelay.failpoints import hit
from walrelay.model.schema import SchemaVersion


class Follower:
    def __init__(self, warehouse: Warehouse, tables: Tables) -> None:
        self._warehouse = warehouse
        self._tables = tables

    def finished(self, kept: Kept) -> Kept:
        """With DDL that a run has left half done."""
        ledger = kept.state.ledger
        if ledger is None:
            return kept
        there = self._warehouse.columns(kept.state.place)
        if there is None:
            raise CopyAgainError(f"{kept.state.place} is gone from {self._warehouse.shown}")
        for done in range(ledger.done, len(ledger.steps)):
            step = ledger.steps[done]
            if done > ledger.done or not step.is_done(there):
                self._warehouse.alter(kept.state.place, step)
                hit("destination.ddl")
            kept = self._tables.put(replace(kept.state, ledger=replace(ledger, done=done + 1)))
        state = replace(kept.state, columns=ledger.columns, shape=ledger.shape, key=ledger.key, ledger=None)
        return self._tables.put(state)

    def follow(self, kept: Kept, versions: list[SchemaVersion]) -> Kept:
        """The table with the name and the columns of the last of these versions, each of which it goes through."""
        kept = self.finished(kept)
        last = versions[-1]
        shape = (last.from_lsn, last.version)
        if shape <= kept.state.shape:
            return kept
        self._refuse_guesses(kept, versions)
        self._tables.follow_name(last.schema)
        kept = self._tables.kept(last.schema.id) or kept
        wanted = match_held(last.schema.columns, kept.state.columns, self._warehouse.dialect)
        steps = alterations(wanted, kept.state.columns, self._warehouse.here)
        self._refuse_sorted(kept, last, steps)
        columns = tuple(one.becomes() for one in wanted)
        ledger = Ledger(steps, 0, columns, shape, last.schema.primary_key)
        return self.finished(self._tables.put(replace(kept.state, ledger=ledger)))

    def _refuse_guesses(self, kept: Kept, versions: list[SchemaVersion]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        if kept.state.copied is None:
            return
        columns, has_rows = kept.state.columns, kept.state.has_rows or bool(kept.applied)
        for version in versions:
            wanted = match_held(version.schema.columns, columns, self._warehouse.dialect)
            unknown = [one.column.name for one in wanted if not one.is_told]
            if has_rows and (unknown or version.doubt):
                why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
                raise CopyAgainError(f"{version.schema.name} was altered: {why}")
            columns = tuple(one.becomes() for one in wanted)
            has_rows = True  # perhaps: changes of this batch have brought some

    def _refuse_sorted(self, kept: Kept, version: SchemaVersion, steps: tuple[Alteration, ...]) -> None:
        """Neither service alters the columns that a table is sorted by, or lets the declared key become another one."""
        fixed = {self._warehouse.here(name) for name in kept.state.key}
        touched = [step.column for step in steps if step.kind != "add" and step.column in fixed]
        if touched or version.schema.primary_key != kept.state.key:
            raise CopyAgainError(f"{version.schema.name} was altered: another key, or other names in it")


def alterations(
    wanted: list[Wanted], held: tuple[HeldColumn, ...], here: Callable[[str], str]
) -> tuple[Alteration, ...]:
    """The statements, in order. A name that another column has, or had, becomes free by way of one of ours."""
    kept = {one.held.name: one for one in wanted if one.held is not None}
    drops = [Alteration("drop", here(one.name)) for one in held if one.name not in kept]
    moved = [
        (here(before.name), here(one.column.name))
        for before in held
        if (one := kept.get(before.name)) is not None and here(before.name) != here(one.column.name)
    ]
    taken = {old for old, _ in moved}
    aside = {old: f"walrelay_moves_{number}" for number, (old, new) in enumerate(moved) if new in taken}
    renames = [Alteration("rename", old, aside[old]) for old, _ in moved if old in aside]
    renames += [Alteration("rename", old, new) for old, new in moved if old not in aside]
    renames += [Alteration("rename", aside[old], new) for old, new in moved if old in aside]
    retypes = [
        Alteration("retype", here(one.column.name), one.type)
        for one in wanted
        if one.held is not None and one.held.type != one.type
    ]
    adds = [Alteration("add", here(one.column.name), one.type) for one in wanted if one.held is None]
    return (*drops, *renames, *retypes, *adds)
