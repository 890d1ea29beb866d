"""Makes a table look like its source: add, drop, rename and retype columns, change its key and its name (SEMANTICS 18).

All within the transaction that takes the changes: what was altered and what was recorded of it come together or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from psycopg import errors as pg

from walrelay.changes.shapes import HeldColumn, Wanted, held_columns, match_held
from walrelay.destinations.holdings import Shape
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.keys import add_key, change_key
from walrelay.destinations.postgres.places import TargetPlaces, make_schema, place
from walrelay.destinations.postgres.types import TargetTypes
from walrelay.errors import CopyAgainError
from walrelay.failpoints import hit
from walrelay.model.retyping import keeps_values
from walrelay.model.schema import SchemaVersion, TableSchema


class ShapeKeeper:
    """Follows the shapes of tables within the open transaction."""

    def __init__(self, connection: Connection, book: TargetBook, types: TargetTypes) -> None:
        self._connection = connection
        self._book = book
        self._dialect = types.dialect(connection)
        self._places = TargetPlaces(connection, book)

    def needs(self, held: Shape | None, version: SchemaVersion) -> bool:
        """Whether the table is to be made or altered."""
        return held is None or held.is_behind(version)

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
        version = self._named_now(held, version)
        shape = self._create(version) if held is None else self._alter(held, version, whole)
        self._book.reshape(version.schema, shape)
        return shape

    def _named_now(self, held: Shape | None, version: SchemaVersion) -> SchemaVersion:
        """The version, with the name that the table is to have."""
        schema = version.schema
        if held is not None and held.name == schema.name:
            return version
        return replace(version, schema=replace(schema, name=self._places.wanted(schema.id, schema.name)))

    def _create(self, version: SchemaVersion) -> Shape:
        schema = version.schema
        make_schema(self._connection, schema.name.schema)
        self._places.make_room(schema.id, schema.name)
        if self._places.is_there(schema.name):
            raise CopyAgainError(f"{schema.name} was to be copied, and was not: what its rows are worth is not known")
        columns = held_columns(schema.columns, self._dialect)
        create_table(self._connection, place(schema.name), columns)
        add_key(self._connection, place(schema.name), schema)
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _alter(self, held: Shape, version: SchemaVersion, whole: bool) -> Shape:
        schema = version.schema
        wanted = match_held(schema.columns, held.columns, self._dialect)
        if whole:
            self._refuse_guesses(held, version, wanted)
        if held.name != schema.name:
            self._places.move(schema.id, held.name, schema.name)
        table = place(schema.name)
        # Not by names and types: a column that was dropped and added again may look as the one before it.
        for step in steps(held.columns, wanted):
            self._step(f"ALTER TABLE {table} {step}", schema)
            hit("destination.ddl")
        try:
            change_key(self._connection, schema.name, schema)
        except (pg.UniqueViolation, pg.NotNullViolation) as error:
            raise CopyAgainError(
                f"{schema.name} was altered: its rows here are not told apart by its new key"
            ) from error
        columns = tuple(one.becomes() for one in wanted)
        return Shape(schema.name, columns, version.from_lsn, version.version)

    def _refuse_guesses(self, held: Shape, version: SchemaVersion, wanted: list[Wanted]) -> None:
        """A column may come with values in rows that are here already, or change those it has; the log has only what
        was written since. Then the rows have to be fetched."""
        unknown = [one.column.name for one in wanted if not _is_told(one)]
        if not unknown and not version.doubt:
            return
        if rows(self._connection, f"SELECT 1 FROM {place(held.name)} LIMIT 1"):
            why = version.doubt or f"what its older rows hold in {', '.join(unknown)} is not in the change log"
            raise CopyAgainError(f"{held.name} was altered: {why}")

    def _step(self, statement: str, schema: TableSchema) -> None:
        try:
            run(self._connection, statement)
        except (pg.DataError, pg.DatatypeMismatch, pg.CannotCoerce) as error:
            raise CopyAgainError(f"{schema.name} was altered: what is here cannot become the new type") from error


def _is_told(one: Wanted) -> bool:
    """Whether what is here, and changes, are enough to know what older rows hold."""
    if one.held is None:
        return not one.column.filled
    before, now = one.held, one.becomes()
    return keeps_values(before.source_type, now.source_type) if before.source_type else before.type == now.type


def create_table(connection: Connection, table: str, columns: tuple[HeldColumn, ...]) -> None:
    described = ", ".join(f"{quoted(one.name)} {one.type}" for one in columns)
    run(connection, f"CREATE TABLE {table} ({described})")


def steps(held: tuple[HeldColumn, ...], wanted: list[Wanted]) -> Iterator[str]:
    """What to alter, in an order in which no name is taken."""
    kept = {one.held.name for one in wanted if one.held is not None}
    yield from (f"DROP COLUMN {quoted(one.name)}" for one in held if one.name not in kept)
    yield from _renames([(one.held.name, one.column.name) for one in wanted if one.held is not None])
    for one in wanted:
        now, name = one.becomes(), quoted(one.column.name)
        if one.held is None:
            yield f"ADD COLUMN {name} {now.type}"
        elif one.held.type != now.type:
            yield f"ALTER COLUMN {name} TYPE {now.type} USING {name}::{now.type}"


def _renames(pairs: list[tuple[str, str]]) -> Iterator[str]:
    """By way of names that nobody has, when a new name is still another column's."""
    pairs = [(old, new) for old, new in pairs if old != new]
    olds = {old for old, _ in pairs}
    if any(new in olds for _, new in pairs):
        yield from (f"RENAME COLUMN {quoted(old)} TO _walrelay_{n}" for n, (old, _) in enumerate(pairs))
        pairs = [(f"_walrelay_{n}", new) for n, (_, new) in enumerate(pairs)]
    yield from (f"RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in pairs)
