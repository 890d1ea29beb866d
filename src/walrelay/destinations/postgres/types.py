"""The types that columns have in the database that is written to: found there, or made as the source has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from walrelay.decode.registry import find_rule
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.dialect import DIALECT, PostgresDialect, literal, quoted, stands_for
from walrelay.destinations.postgres.failures import TargetTypeError
from walrelay.errors import CopyAgainError
from walrelay.model.schema import Column, PgType, TableSchema

Labels = Callable[[Collection[int]], Mapping[int, tuple[str, ...]] | None]
"""What the source says of enums, by their oids there; None when it cannot be asked."""

_BY_NAME = (
    "SELECT t.oid::int8 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace"
    " WHERE n.nspname = %s AND t.typname = %s"
)
_BY_EXTENSION = (
    "SELECT t.oid::int8 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_depend d ON d.objid = t.oid AND d.deptype = 'e'"
    " AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid"
    " WHERE x.extname = %s AND t.typname = %s"
)
_ATTRIBUTES = (
    "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_type t"
    " JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid WHERE t.oid = %s AND a.attnum > 0"
    " AND NOT a.attisdropped ORDER BY a.attnum"
)
_LABELS = "SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = %s ORDER BY enumsortorder"


class TargetTypes:
    """Remembers what it has found for as long as its owner likes: `forget` when types may have changed."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._oids: dict[tuple[str, str, str | None], int | None] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._known_labels: dict[int, list[str]] = {}

    def forget(self) -> None:
        self._oids.clear()
        self._names.clear()
        self._known_labels.clear()

    def dialect(self, connection: Connection) -> PostgresDialect:
        """By which columns have the very names of their types in this database."""
        return _Resolved(connection, self)

    def column_type(self, connection: Connection, column: Column) -> str:
        """The column's type as a statement has it."""
        if not column.as_text:
            return self.sql(connection, column.type)
        type_ = column.type
        is_foreign = type_.kind == "base" and type_.schema != "pg_catalog"
        oid = self._oid(connection, type_) if is_foreign else None
        return "text" if oid is None else self._format(connection, oid, type_.modifier)

    def sql(self, connection: Connection, type_: PgType) -> str:
        type_ = stands_for(type_)
        if type_.kind == "array":
            assert type_.element is not None
            # An array of a domain that is an array itself: without the domain there is no such type but of text.
            inner = "text" if type_.element.kind == "array" else self.sql(connection, type_.element)
            return f"{inner}[]"
        oid = self._oid(connection, type_)
        if oid is None:
            raise _missing(type_)
        return self._format(connection, oid, type_.modifier)

    def _oid(self, connection: Connection, type_: PgType) -> int | None:
        key = (type_.schema, type_.name, type_.extension)
        if self._oids.get(key) is None:
            by_extension = (_BY_EXTENSION, (type_.extension, type_.name))
            by_name = (_BY_NAME, (type_.schema, type_.name))
            found = rows(connection, *(by_extension if type_.extension else by_name))
            self._oids[key] = found[0][0] if found else None
        return self._oids[key]

    def _format(self, connection: Connection, oid: int, modifier: int) -> str:
        if (oid, modifier) not in self._names:
            ((name,),) = rows(connection, "SELECT pg_catalog.format_type(%s::oid, %s)", (oid, modifier))
            self._names[oid, modifier] = name
        return self._names[oid, modifier]

    # ------------------------------------------------------------------------------------------------------- making

    def make(self, connection: Connection, schema: TableSchema, *, replaces: bool) -> None:
        """Make the types that the table needs and that are not there; on a connection that commits by itself, since a
        label of an enum can be used once it is committed. `replaces`: the table is about to be made anew, so that a
        type of another make may be put aside."""
        for column in schema.columns:
            if column.as_text:
                continue
            for type_ in _parts_first(column.type):
                self._make(connection, type_, schema, replaces)

    def _make(self, connection: Connection, type_: PgType, schema: TableSchema, replaces: bool) -> None:
        if type_.schema == "pg_catalog" or type_.extension is not None:
            return
        if type_.kind == "enum":
            self._make_enum(connection, type_)
        elif type_.kind == "composite" and type_.fields:
            self._make_composite(connection, type_, schema, replaces)
        elif type_.kind in ("range", "multirange") and self._oid(connection, type_) is None:
            self._make_range(connection, type_)

    def _make_enum(self, connection: Connection, type_: PgType) -> None:
        oid = self._oid(connection, type_)
        if oid is not None and oid in self._known_labels:
            return
        there = [] if oid is None else [label for (label,) in rows(connection, _LABELS, (oid,))]
        found = self._labels([type_.oid])
        wanted = None if found is None else found.get(type_.oid)
        if oid is None:
            if wanted is None:
                raise _missing(type_)
            self._run(connection, type_, f"AS ENUM ({', '.join(map(literal, wanted))})")
            oid = self._oid(connection, type_)
        elif wanted is not None:
            _grow_enum(connection, _place(type_), there, list(wanted))
        assert oid is not None
        self._known_labels[oid] = list(wanted or there)

    def _make_composite(self, connection: Connection, type_: PgType, schema: TableSchema, replaces: bool) -> None:
        wanted = [(part.name, self.sql(connection, part.type)) for part in type_.fields]
        oid = self._oid(connection, type_)
        if oid is not None:
            if rows(connection, _ATTRIBUTES, (oid,)) == wanted:
                return
            if not replaces:
                raise CopyAgainError(f"{schema.name} was altered: its type {type_} has other attributes now")
            # Tables that have it keep it under its new name until they are copied too.
            aside = quoted(f"_walrelay_old_{oid}")
            run(connection, f"ALTER TYPE {_place(type_)} RENAME TO {aside}")
            self.forget()
        attributes = ", ".join(f"{quoted(name)} {kind}" for name, kind in wanted)
        self._run(connection, type_, f"AS ({attributes})")

    def _make_range(self, connection: Connection, type_: PgType) -> None:
        """Of a multirange its range, which brings it along."""
        assert type_.element is not None
        inner = type_.element if type_.kind == "multirange" else type_
        assert inner.element is not None
        options = [f"SUBTYPE = {self.sql(connection, inner.element)}"]
        if type_.kind == "multirange":
            options.append(f"MULTIRANGE_TYPE_NAME = {_place(type_)}")
        self._run(connection, inner, f"AS RANGE ({', '.join(options)})")

    def _run(self, connection: Connection, type_: PgType, made: str) -> None:
        run(connection, f"CREATE SCHEMA IF NOT EXISTS {quoted(type_.schema)}")
        run(connection, f"CREATE TYPE {_place(type_)} {made}")


class _Resolved(PostgresDialect):
    """Asks the database for the names of types."""

    def __init__(self, connection: Connection, types: TargetTypes) -> None:
        super().__init__(DIALECT.target, DIALECT.flat, DIALECT.list_of, DIALECT.struct_of, DIALECT.quote)
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_types", types)

    _connection: Connection
    _types: TargetTypes

    def column_type(self, column: Column) -> str:
        return self._types.column_type(self._connection, column)


def _grow_enum(connection: Connection, place: str, there: list[str], wanted: list[str]) -> None:
    """Rename labels where their number is the same and each stands where it stood; add those that are new."""
    if len(there) == len(wanted):
        for old, new in zip(there, wanted, strict=True):
            if old != new and old not in wanted and new not in there:
                run(connection, f"ALTER TYPE {place} RENAME VALUE {literal(old)} TO {literal(new)}")
                there = [new if one == old else one for one in there]
    for number, label in enumerate(wanted):
        if label not in there:
            before = (
                f" AFTER {literal(wanted[number - 1])}" if number else (f" BEFORE {literal(there[0])}" if there else "")
            )
            run(connection, f"ALTER TYPE {place} ADD VALUE IF NOT EXISTS {literal(label)}{before}")
            there = [*there, label]


def _parts_first(type_: PgType) -> Iterator[PgType]:
    """The type and all that it is made of, what others need before them. A multirange before its range, which it
    makes."""
    if find_rule(type_) is None:
        return
    inner = type_.element
    if type_.kind == "multirange" and inner is not None:
        if inner.element is not None:
            yield from _parts_first(inner.element)
        yield type_
        return
    for part in [*(one.type for one in type_.fields), *([inner] if inner else [])]:
        yield from _parts_first(part)
    yield type_


def _place(type_: PgType) -> str:
    return f"{quoted(type_.schema)}.{quoted(type_.name)}"


def _missing(type_: PgType) -> TargetTypeError:
    plain = replace(type_, display="", modifier=-1)
    if type_.extension is not None:
        return TargetTypeError(
            f"the destination lacks the type {plain}, of the extension {type_.extension}",
            hint=f"Run there, as a user who may: CREATE EXTENSION IF NOT EXISTS {quoted(type_.extension)};",
        )
    return TargetTypeError(
        f"the destination lacks the type {_place(plain)}, and the source could not be asked what it is",
        hint=f"Make it there as the source has it: CREATE TYPE {_place(plain)} AS …;",
    )
