"""Makes a table in a DuckDB file look like its source: add, drop, rename and widen columns (SEMANTICS 18)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from walrelay.changes.shapes import HeldColumn, Wanted, match_held
from walrelay.destinations.duckdb.dialect import DIALECT, quoted
from walrelay.destinations.duckdb.names import folded, refuse_twins
from walrelay.destinations.duckdb.places import DuckDBPlaces
from walrelay.destinations.duckdb.progress import NO_COLUMNS, ProgressBook, of_columns, place
from walrelay.destinations.holdings import Shape
from walrelay.errors import CopyAgainError, DestinationError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import SchemaVersion, TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class ShapeKeeper:
    """Follows the shapes of tables within the open transaction."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, book: ProgressBook) -> None:
        self._connection = connection
        self._catalog = catalog
        self._book = book
        self._places = DuckDBPlaces(connection, catalog, book)

    def follow(self, held: Shape | None, version: SchemaVersion, *, whole: bool) -> Shape:
        """The table's shape for changes of this version: what is there when the version is older, else the new one.
        `whole`: it was copied, and so has to hold in every row what the source holds."""
        if held is not None and version.schema.id in self._places.moved:
            # By another table, which has its name now.
            held = replace(held, name=self._places.moved[version.schema.id])
        if held is not None and not held.is_behind(version):
            if held.name != version.schema.name:
                held = replace(held, name=self._places.return_name(version.schema.id, held.name))
            return held
        if held is None:
            held = self._found(version.schema)
        version = self._named_now(held, version)
        shape = self._create(version) if held is None else self._alter(held, version, whole)
        self._book.reshape(version.schema.id, shape)
        self._book.describe(version.schema)
        self._comment(version.schema)
        return shape

    def _found(self, schema: TableSchema) -> Shape | None:
        """The table as it stands, when an earlier walrelay that recorded no shapes has copied it."""
        if self._book.holding(schema.name) not in self._book.placed(schema.id):
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

    def _named_now(self, held: Shape | None, version: SchemaVersion) -> SchemaVersion:
        """The version, with the name that the table is to have."""
        schema = version.schema
        if held is not None and held.name == schema.name:
            return version
        return replace(version, schema=replace(schema, name=self._places.wanted(schema.id, schema.name)))

    def _create(self, version: SchemaVersion) -> Shape:
        schema = version.schema
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(schema.name.schema)}")
        refuse_twins(self._connection, schema)
        self._places.make_room(schema.id, schema.name)
        columns = of_columns(schema)
        described = ", ".join(f"{quoted(one.name)} {one.type}" for one in columns) or f"{NO_COLUMNS} BOOLEAN"
        self._connection.execute(f"CREATE TABLE {place(self._catalog, schema.name)} ({described})")
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _alter(self, held: Shape, version: SchemaVersion, whole: bool) -> Shape:
        schema = version.schema
        wanted = match_held(schema.columns, held.columns, DIALECT)
        if whole:
            self._refuse_guesses(held, version, wanted)
        columns = tuple(one.becomes() for one in wanted)
        if held.name != schema.name:
            self._places.move(schema.id, held.name, schema.name)
        # Not by names and types: a column that was dropped and added again may look as the one before it.
        if todo := list(steps(held.columns, wanted)):
            refuse_twins(self._connection, schema)
            table = place(self._catalog, schema.name)
            for step in todo:
                self._step(f"ALTER TABLE {table} {step}", schema.name)
                hit("destination.ddl")
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _refuse_guesses(self, held: Shape, version: SchemaVersion, wanted: list[Wanted]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        unknown = [one.column.name for one in wanted if not one.is_told]
        if not unknown and not version.doubt:
            return
        if self._connection.execute(f"SELECT 1 FROM {place(self._catalog, held.name)} LIMIT 1").fetchall():
            why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
            raise CopyAgainError(f"{held.name} was altered: {why}")

    def _step(self, statement: str, name: TableName) -> None:
        import duckdb

        try:
            self._connection.execute(statement)
        except (duckdb.ConversionException, duckdb.BinderException) as error:
            raise DestinationError(
                f"a column of {name} has changed its type, and DuckDB cannot convert what is there",
                hint="Copy the table again.",
            ) from error

    def _comment(self, schema: TableSchema) -> None:
        self._connection.execute(comment(place(self._catalog, schema.name), schema))


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
