"""Under which names tables stand in a destination when the source has renamed them, also in a circle (SEMANTICS 18).

The log tells a table's new name with the table's next change. The one that had the name before may never change again,
so the source is asked what it is called now: it surely has another name, or is gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Protocol

from walrelay.destinations.holdings import Holding, Writer
from walrelay.errors import NameClashError, OtherSourceError
from walrelay.model.names import TableId, TableName

MOVING = "_walrelay_moving_"
"""How a table is called while those are moved that stand in its way."""


class Book(Protocol):
    """What the destination has recorded of its tables."""

    @property
    def writer(self) -> Writer: ...

    def holding(self, name: TableName) -> Holding | None:
        """Whose copy stands under this name, if a source's does."""

    def holdings(self) -> Sequence[Holding]: ...

    def placed(self, table: TableId) -> Sequence[Holding]:
        """Under which names the table stands."""

    def rename(self, table: TableId, name: TableName) -> None:
        """Record that the table has another name now."""

    def forget(self, table: TableId) -> None:
        """Nothing is known of what was applied to this table."""

    def strike(self, name: TableName) -> None:
        """No table of ours has this name any more."""

    def source_name(self, source_id: str) -> str:
        """A source as people know it."""


class Places(ABC):
    """Moves tables within the open transaction."""

    where: ClassVar[str]
    """What a table stands in, for people."""
    elsewhere: ClassVar[str]
    """What may be chosen instead."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.moved: dict[TableId, TableName] = {}
        """Where tables stand now that were moved in this transaction."""
        self._asked: set[TableId] = set()
        self._names: Mapping[TableId, TableName] | None = None

    @abstractmethod
    def _is_there(self, name: TableName) -> bool:
        """Whether a table, or what else would be in its way, has the name."""

    @abstractmethod
    def _put_under(self, old: TableName, new: TableName) -> None:
        """Let the table have the name, which is free."""

    @abstractmethod
    def _drop(self, name: TableName) -> None: ...

    def _is_same(self, one: TableName, other: TableName) -> bool:
        """Whether the destination takes them for one."""
        return one == other

    @staticmethod
    def _aside(name: TableName, table: TableId) -> TableName:
        """Where a table stands that has lost its name to another."""
        return TableName(name.schema, f"{name.name} {table}")

    def _is_aside(self, one: Holding) -> bool:
        return one.name.name.endswith(f" {one.table}")

    def wanted(self, table: TableId, told: TableName) -> TableName:
        """What the table is to be called: as the log says, unless another has that name. Then as the source calls it
        now, since the log may tell of older names."""
        holder = self._holder(told)
        if holder is None or holder.table == table:
            return told
        names = self._names_now([table])
        if names is None:
            return told
        return names.get(table) or self._aside(told, table)

    def move(self, table: TableId, old: TableName, new: TableName) -> None:
        """Give the table the name, and others that are in the way theirs."""
        others = self._in_the_way(table, new)
        if others and self._is_same(others[-1][1], old):
            # A circle: the last one gets the name that this one has now.
            aside = TableName(old.schema, f"{MOVING}{table}")
            self._rename(table, old, aside)
            old = aside
        self._make_way(others)
        self._rename(table, old, new)

    def make_room(self, table: TableId, name: TableName) -> None:
        """Free the name for the table, which is not there yet."""
        self._make_way(self._in_the_way(table, name))

    def make_room_for_copy(self, table: TableId, name: TableName) -> None:
        """Free the name for a copy, which takes the place of the table's earlier one, whatever that is called, and of
        one that the source has dropped."""
        if self._book.writer.source_id is None:
            return
        for earlier in self._book.placed(table):
            if not self._is_same(earlier.name, name):
                self._drop(earlier.name)
            if earlier.name != name:
                self._book.strike(earlier.name)
        holder = self._holder(name)
        if holder is None or holder.table == table:
            return
        names = self._names_now([holder.table])
        if holder.source_id is None or (names is not None and holder.table not in names):
            self._book.forget(holder.table)
            self._book.strike(holder.name)
        else:
            self._make_way(self._in_the_way(table, name))

    def settle(self) -> None:
        """Give tables their names that had to be put aside while nobody could say what they are called."""
        aside = [one for one in self._book.holdings() if self._is_aside(one)]
        ours = [one for one in aside if one.source_id == self._book.writer.source_id and self._is_there(one.name)]
        names = (self._names_now([one.table for one in ours]) if ours else None) or {}
        for one in ours:
            name = names.get(one.table)
            if name is not None and one.table not in self.moved:
                with suppress(NameClashError, OtherSourceError):  # told to whoever writes to it
                    self.move(one.table, one.name, name)

    def return_name(self, table: TableId, name: TableName) -> TableName:
        """Where the table stands when it was written to under another name, which the log need not say anew: it may
        have got that back, after it had to make room for another."""
        now = (self._names_now([table]) or {}).get(table)
        if now is None or now == name:
            return name
        self.move(table, name, now)
        return now

    def _in_the_way(self, table: TableId, name: TableName) -> list[tuple[Holding, TableName]]:
        """Who stands under the name, and where it is to go; who stands there, and so on: the last one's is free, or the
        first table's own."""
        found: list[tuple[Holding, TableName]] = []
        seen = {table}
        while (holder := self._holder(name)) is not None and holder.table not in seen:
            seen.add(holder.table)
            now = (self._names_now([holder.table]) or {}).get(holder.table)
            if now is None or self._is_same(now, name):
                now = self._aside(name, holder.table)  # it is gone, or nobody can say
            found.append((holder, now))
            name = now
        return found

    def _holder(self, name: TableName) -> Holding | None:
        """Whose table has the name, if there is one; raises when it is not ours to move."""
        if not self._is_there(name):
            return None
        holder = self._book.holding(name)
        if holder is None:
            raise NameClashError(
                f"{name} is in {self.where} already, and walrelay has not made it",
                hint=f"Drop or rename it, or choose {self.elsewhere}.",
                context={"table": str(name)},
            )
        if holder.source_id is not None and holder.source_id != self._book.writer.source_id:
            raise other_source(self._book, name, holder.source_id, self.where, self.elsewhere)
        return holder

    def _names_now(self, tables: list[TableId]) -> Mapping[TableId, TableName] | None:
        """What the source calls its tables now, all of them seen at one moment; None when it cannot be asked."""
        if not self._asked.issuperset(tables):
            ours = [one.table for one in self._book.holdings() if one.source_id == self._book.writer.source_id]
            self._asked = {*ours, *tables}
            self._names = self._book.writer.names(sorted(self._asked))
        return self._names

    def _make_way(self, others: list[tuple[Holding, TableName]]) -> None:
        for holder, name in reversed(others):
            self._rename(holder.table, holder.name, name)

    def _rename(self, table: TableId, old: TableName, new: TableName) -> None:
        self._put_under(old, new)
        self._book.rename(table, new)
        self.moved[table] = new


def other_source(book: Book, name: TableName, source_id: str, where: str, elsewhere: str) -> OtherSourceError:
    this = f"{book.writer.source_name} ({book.writer.source_id})"
    return OtherSourceError(
        f"{name} in {where} has rows of {book.source_name(source_id)}; this source is {this}",
        hint=f"Choose {elsewhere}; or, if nobody wants that copy any more, drop it there: DROP TABLE {name};",
        context={"table": str(name)},
    )
