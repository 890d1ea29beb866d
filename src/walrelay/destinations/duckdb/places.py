"""Under which names tables stand in a DuckDB file when the source has renamed them, also in a circle (SEMANTICS 18).

The log tells a table's new name with the table's next change. The one that had the name before may never change again,
so the source is asked what it is called now: it surely has another name, or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from walrelay.destinations.duckdb.dialect import quoted
from walrelay.destinations.duckdb.names import folded
from walrelay.destinations.duckdb.progress import Holding, ProgressBook, place
from walrelay.errors import NameClashError, OtherSourceError
from walrelay.model.names import TableId, TableName

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOVING = "_walrelay_moving_"
"""How a table is called while those are moved that stand in its way."""


class Places:
    """Moves tables within the open transaction."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, book: ProgressBook) -> None:
        self._connection = connection
        self._catalog = catalog
        self._book = book
        self.moved: dict[TableId, TableName] = {}
        """Where tables stand now that were moved in this transaction."""
        self._asked: set[TableId] = set()
        self._names: Mapping[TableId, TableName] | None = None

    def wanted(self, table: TableId, told: TableName) -> TableName:
        """What the table is to be called: as the log says, unless another has that name. Then as the source calls it
        now, since the log may tell of older names."""
        holder = self._holder(told)
        if holder is None or holder.table == table:
            return told
        names = self._names_now([table])
        if names is None:
            return told
        return names.get(table) or _aside(told, table)

    def move(self, table: TableId, old: TableName, new: TableName) -> None:
        """Give the table the name, and others that are in the way theirs."""
        others = self._in_the_way(table, new)
        if others and folded(*_parts(others[-1][1])) == folded(*_parts(old)):
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
            if folded(*_parts(earlier.name)) != folded(*_parts(name)):
                self._connection.execute(f"DROP TABLE IF EXISTS {place(self._catalog, earlier.name)}")
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
        aside = [one for one in self._book.holdings() if one.name.name.endswith(f" {one.table}")]
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
            if now is None or folded(*_parts(now)) == folded(*_parts(name)):
                now = _aside(name, holder.table)  # it is gone, or nobody can say
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
                f"{name} is in DuckDB already, and walrelay has not made it",
                hint="Drop or rename it, or choose another file.",
            )
        if holder.source_id is not None and holder.source_id != self._book.writer.source_id:
            raise other_source(self._book, name, holder.source_id)
        return holder

    def _is_there(self, name: TableName) -> bool:
        there = self._connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", [self._catalog]
        ).fetchall()
        return any(folded(*one) == folded(*_parts(name)) for one in there)

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
        if old.schema == new.schema:
            self._connection.execute(f"ALTER TABLE {place(self._catalog, old)} RENAME TO {quoted(new.name)}")
        else:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(new.schema)}")
            there, here = place(self._catalog, old), place(self._catalog, new)
            comment = self._comment(old)
            self._connection.execute(f"CREATE TABLE {here} AS SELECT * FROM {there}")
            self._connection.execute(f"DROP TABLE {there}")
            if comment is not None:
                self._connection.execute(f"COMMENT ON TABLE {here} IS '{comment.replace(chr(39), chr(39) * 2)}'")
        self._book.rename(table, new)
        self.moved[table] = new

    def _comment(self, name: TableName) -> str | None:
        found = self._connection.execute(
            "SELECT comment FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
            [self._catalog, *_parts(name)],
        ).fetchall()
        return found[0][0] if found else None


def _parts(name: TableName) -> tuple[str, str]:
    return name.schema, name.name


def _aside(name: TableName, table: TableId) -> TableName:
    """Where a table stands that has lost its name to another."""
    return TableName(name.schema, f"{name.name} {table}")


def other_source(book: ProgressBook, name: TableName, source_id: str) -> OtherSourceError:
    this = f"{book.writer.source_name} ({book.writer.source_id})"
    return OtherSourceError(
        f"{name} in the DuckDB file has rows of {book.source_name(source_id)}; this source is {this}",
        hint=f"Choose another file; or, if nobody wants that copy any more, drop it there: DROP TABLE {name};",
        context={"table": str(name)},
    )
