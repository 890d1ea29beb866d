"""Makes a table in a DuckDB file look like its source: add, drop, rename and widen columns (SEMANTICS 18)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walrelay.decode.table import duckdb_column_type
from walrelay.destinations.duckdb_names import folded, refuse_twins
from walrelay.destinations.duckdb_progress import NO_COLUMNS, HeldColumn, ProgressBook, Shape, of_columns, place
from walrelay.destinations.duckdb_types import quoted
from walrelay.errors import CopyAgainError, DestinationError, NameClashError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, SchemaVersion, TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


WIDENING = frozenset({("SMALLINT", "INTEGER"), ("SMALLINT", "BIGINT"), ("INTEGER", "BIGINT"), ("FLOAT", "DOUBLE")})
"""Changes of a column's type that leave its values as they are. Any other may have computed new ones."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a column should be, and what it is now, if it is there."""

    column: Column
    held: HeldColumn | None

    def becomes(self) -> HeldColumn:
        column = self.column
        attnum = column.attnum or (self.held.attnum if self.held else 0)
        added = self.held is None or self.held.added
        return HeldColumn(column.name, attnum, duckdb_column_type(column), added)

    @property
    def is_told(self) -> bool:
        """Whether what is here, and changes, are enough to know what older rows hold."""
        if self.held is None:
            return not self.column.filled
        before, now = self.held.type, self.becomes().type
        return before == now or (before, now) in WIDENING or _is_wider(before, now)


def match_columns(columns: tuple[Column, ...], held: tuple[HeldColumn, ...]) -> list[Wanted]:
    """Which of the held columns each one is: by attribute number where both have one, else by name."""
    by_number = {one.attnum: one for one in held if one.attnum}
    by_name = {one.name: one for one in held}
    taken = {found.name for column in columns if (found := by_number.get(column.attnum))}
    matched = []
    for column in columns:
        found = by_number.get(column.attnum)
        if found is None:
            named = by_name.get(column.name)
            is_same = named is not None and named.name not in taken and not (named.attnum and column.attnum)
            found = named if is_same else None
        matched.append(Wanted(column, found))
    return matched


class ShapeKeeper:
    """Follows the shapes of tables within the open transaction."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, book: ProgressBook) -> None:
        self._connection = connection
        self._catalog = catalog
        self._book = book

    def follow(self, held: Shape | None, version: SchemaVersion, *, whole: bool) -> Shape:
        """The table's shape for changes of this version: what is there when the version is older, else the new one.
        `whole`: it was copied, and so has to hold in every row what the source holds."""
        if held is not None and not held.is_behind(version):
            return held
        if held is None:
            held = self._found(version.schema)
        shape = self._create(version) if held is None else self._alter(held, version, whole)
        self._book.reshape(version.schema.id, shape)
        self._book.describe(version.schema)
        self._comment(version.schema)
        return shape

    def _found(self, schema: TableSchema) -> Shape | None:
        """The table as it stands, when an earlier walrelay that recorded no shapes has copied it."""
        if self._book.owner(schema.name) != schema.id:
            return None
        rows = self._connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = ?"
            " AND table_name = ? ORDER BY column_index",
            [self._catalog, schema.name.schema, schema.name.name],
        ).fetchall()
        if not rows:
            return None
        columns = tuple(HeldColumn(name, 0, type_) for name, type_ in rows if name != NO_COLUMNS)
        return Shape(schema.name, columns, Lsn(0), 0)

    def _create(self, version: SchemaVersion) -> Shape:
        schema = version.schema
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(schema.name.schema)}")
        refuse_twins(self._connection, schema)
        self._make_room(schema)
        columns = of_columns(schema)
        described = ", ".join(f"{quoted(one.name)} {one.type}" for one in columns) or f"{NO_COLUMNS} BOOLEAN"
        self._connection.execute(f"CREATE TABLE {place(self._catalog, schema.name)} ({described})")
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _alter(self, held: Shape, version: SchemaVersion, whole: bool) -> Shape:
        schema = version.schema
        wanted = match_columns(schema.columns, held.columns)
        if whole:
            self._refuse_guesses(held, wanted)
        columns = tuple(one.becomes() for one in wanted)
        if held.name != schema.name:
            self._move(held.name, schema)
        if [(one.name, one.type) for one in columns] != [(one.name, one.type) for one in held.columns]:
            refuse_twins(self._connection, schema)
            table = place(self._catalog, schema.name)
            for step in steps(held.columns, wanted):
                self._step(f"ALTER TABLE {table} {step}", schema.name)
                hit("destination.ddl")
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _refuse_guesses(self, held: Shape, wanted: list[Wanted]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        unknown = [one.column.name for one in wanted if not one.is_told]
        if unknown and self._connection.execute(f"SELECT 1 FROM {place(self._catalog, held.name)} LIMIT 1").fetchall():
            raise CopyAgainError(
                f"{held.name} was altered: what its older rows hold in {', '.join(unknown)} is not in the change log"
            )

    def _step(self, statement: str, name: TableName) -> None:
        import duckdb

        try:
            self._connection.execute(statement)
        except (duckdb.ConversionException, duckdb.BinderException) as error:
            raise DestinationError(
                f"a column of {name} has changed its type, and DuckDB cannot convert what is there",
                hint="Copy the table again.",
            ) from error

    def _move(self, old: TableName, schema: TableSchema) -> None:
        """The table has another name now, or stands in another schema."""
        new = schema.name
        self._make_room(schema)
        if old.schema == new.schema:
            self._connection.execute(f"ALTER TABLE {place(self._catalog, old)} RENAME TO {quoted(new.name)}")
        else:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(new.schema)}")
            there, here = place(self._catalog, old), place(self._catalog, new)
            self._connection.execute(f"CREATE TABLE {here} AS SELECT * FROM {there}")
            self._connection.execute(f"DROP TABLE {there}")
        self._book.rename(schema.id, new)

    def _make_room(self, schema: TableSchema) -> None:
        """Put aside what has the table's name: in Postgres the name is this one's, so the other has lost it."""
        name = schema.name
        there = self._connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", [self._catalog]
        ).fetchall()
        if all(folded(*one) != folded(name.schema, name.name) for one in there):
            return
        owner = self._book.owner(name)
        if owner == schema.id:
            return
        if owner is None:
            raise NameClashError(
                f"{name} is in DuckDB already, and walrelay has not made it",
                hint="Drop or rename it, or choose another file.",
            )
        aside = TableName(name.schema, f"{name.name} {owner}")
        self._connection.execute(f"ALTER TABLE {place(self._catalog, name)} RENAME TO {quoted(aside.name)}")
        self._book.rename(owner, aside)

    def _comment(self, schema: TableSchema) -> None:
        self._connection.execute(comment(place(self._catalog, schema.name), schema))


def _is_wider(before: str, now: str) -> bool:
    """Whether it is a decimal with more digits before the point, and as many after it."""
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    return old is not None and new is not None and old[2] == new[2] and int(old[1]) <= int(new[1])


def comment(table: str, schema: TableSchema) -> str:
    """SQL that says what the table's key is."""
    key = ", ".join(schema.primary_key)
    text = f"primary key: {key}" if key else "no primary key"
    return f"COMMENT ON TABLE {table} IS '{text.replace(chr(39), chr(39) * 2)}'"


def steps(held: tuple[HeldColumn, ...], wanted: list[Wanted]) -> Iterator[str]:
    """What to alter, in an order in which no name is taken and no table is left without columns."""
    kept = {one.held.name for one in wanted if one.held is not None}
    dropped = [one for one in held if one.name not in kept]
    if not kept and held:
        yield f"ADD COLUMN {NO_COLUMNS} BOOLEAN"
    yield from (f"DROP COLUMN {quoted(one.name)}" for one in dropped)
    yield from _renames([(one.held.name, one.column.name) for one in wanted if one.held is not None])
    for one in wanted:
        now = one.becomes()
        if one.held is None:
            yield f"ADD COLUMN {quoted(now.name)} {now.type}"
        elif one.held.type != now.type:
            yield f"ALTER COLUMN {quoted(now.name)} TYPE {now.type}"
    if not kept and wanted:
        yield f"DROP COLUMN {NO_COLUMNS}"


def _renames(pairs: list[tuple[str, str]]) -> Iterator[str]:
    """By way of names that nobody has, when a new name is still another column's."""
    pairs = [(old, new) for old, new in pairs if old != new]
    olds = {folded(old) for old, _ in pairs}
    if any(folded(new) in olds for _, new in pairs):
        yield from (f"RENAME COLUMN {quoted(old)} TO _walrelay_{n}" for n, (old, _) in enumerate(pairs))
        pairs = [(f"_walrelay_{n}", new) for n, (_, new) in enumerate(pairs)]
    yield from (f"RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in pairs)
