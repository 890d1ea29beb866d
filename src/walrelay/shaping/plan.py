"""What becomes of each column of a table: the options of a table, met with one version of its shape."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.model.table_options import Hash, KeepLast, Mask, TableOptions, WithConstant, WithNull
from walrelay.shaping.constants import constant_type
from walrelay.shaping.failures import refused

TEXT, BOOL = PgType(25, "text"), PgType(16, "bool")
INT8, TIMESTAMPTZ = PgType(20, "int8"), PgType(1184, "timestamptz")
DELETED = Column("_walrelay_deleted", BOOL, attnum=20_001)
DELETED_AT = Column("_walrelay_deleted_at", TIMESTAMPTZ, attnum=20_002)
SOFT_DELETES = (DELETED, DELETED_AT)
OPERATION = Column("_walrelay_operation", TEXT, attnum=20_003)
LSN = Column("_walrelay_lsn", INT8, attnum=20_004)
ORDINAL = Column("_walrelay_ordinal", INT8, attnum=20_005)
COMMITTED_AT = Column("_walrelay_committed_at", TIMESTAMPTZ, attnum=20_006)
HISTORY = (OPERATION, LSN, ORDINAL, COMMITTED_AT)
"""Columns of our own. Postgres has no attribute numbers as large as theirs."""


@dataclass(frozen=True, slots=True)
class ShapedColumn:
    """A column as the destination gets it."""

    column: Column
    source: Column
    """What it is made of."""
    hidden: Hash | Mask | None = None
    """What is done to its values."""

    @property
    def needs_values(self) -> bool:
        """Whether the source's values matter at all."""
        return not isinstance(self.hidden, WithNull)

    @property
    def needs_text(self) -> bool:
        return isinstance(self.hidden, Hash | KeepLast)


@dataclass(frozen=True)
class Plan:
    """How one version of a table is shaped. It travels to tasks; it holds the salt."""

    source: TableSchema
    shaped: TableSchema
    """What the destination is told."""
    columns: tuple[ShapedColumn, ...]
    """Those that come from the source, in order; behind them are the columns of our own."""
    soft_deletes: bool = False
    history: bool = False

    @property
    def made(self) -> tuple[Column, ...]:
        """The columns of our own."""
        return SOFT_DELETES if self.soft_deletes else HISTORY if self.history else ()

    @property
    def read(self) -> TableSchema:
        """What a copy has to ask the source for."""
        needed = {one.source.name for one in self.columns if one.needs_values}
        # A row has to have something, to be counted.
        kept = tuple(one for one in self.source.columns if one.name in needed) or self.source.columns[:1]
        return replace(self.source, columns=kept)

    @property
    def renames_only(self) -> bool:
        """Whether values, and which columns there are, stay as they are."""
        return not self.made and not any(one.hidden for one in self.columns)


def plan_for(schema: TableSchema, options: TableOptions) -> Plan:
    """Raises TableOptionError for what cannot be done to a table of this shape."""
    _check_names(schema, options)
    chosen = [column for column in schema.columns if _arrives(column, options)]
    columns = tuple(_shaped(schema, column, options) for column in chosen)
    plan = Plan(schema, schema, columns, bool(options.soft_deletes), options.history == "changes")
    _check_key(plan, options)
    doubled = [name for name, count in Counter(_names(plan)).items() if count > 1]
    if doubled:
        raise refused(schema, "rename", f"two columns would be called {doubled[0]}")
    return replace(plan, shaped=_schema(plan, options))


def _names(plan: Plan) -> Iterator[str]:
    yield from (one.column.name for one in plan.columns)
    yield from (one.name for one in plan.made)


def _arrives(column: Column, options: TableOptions) -> bool:
    if options.columns is not None:
        return column.name in options.columns
    return column.name not in (options.leave_out or ())


def _check_names(schema: TableSchema, options: TableOptions) -> None:
    there = {column.name for column in schema.columns}
    said: dict[str, Iterable[str]] = {
        "columns": options.columns or (),
        "leave_out": options.leave_out or (),
        "hash": options.hash.columns if options.hash else (),
        "mask": options.mask or (),
        "rename": options.rename.columns if options.rename else (),
    }
    for option, names in said.items():
        for name in names:
            if name not in there:
                raise refused(schema, option, f"the table has no column {name}", f"It has: {', '.join(sorted(there))}.")


def _check_key(plan: Plan, options: TableOptions) -> None:
    schema = plan.source
    by_name = {one.source.name: one for one in plan.columns}
    for name in schema.key_columns:
        if name not in by_name:
            option = "columns" if options.columns is not None else "leave_out"
            raise refused(schema, option, f"the key needs the column {name}", f"Let {name} arrive; hash it to hide it.")
        if by_name[name].hidden is not None and not isinstance(by_name[name].hidden, Hash):
            raise refused(
                schema, "mask", f"{name} belongs to the key: rows could not be told apart", f"Hash {name} instead."
            )
    if plan.soft_deletes and not schema.key_columns:
        raise refused(
            schema,
            "soft_deletes",
            "the table has no key by which a row that was deleted could be found",
            "Give the table a primary key, or leave out soft_deletes.",
        )
    if options.history == "scd2":
        raise refused(schema, "history", "scd2 is not there in this version", 'Use history="changes".')


def _shaped(schema: TableSchema, column: Column, options: TableOptions) -> ShapedColumn:
    name = options.rename.columns.get(column.name, column.name) if options.rename else column.name
    hidden: Hash | Mask | None = (options.mask or {}).get(column.name)
    if options.hash is not None and column.name in options.hash.columns:
        hidden = options.hash
    if hidden is None:
        return ShapedColumn(replace(column, name=name), column)
    type_, as_text = column.type, column.as_text
    if isinstance(hidden, Hash | KeepLast):
        type_, as_text = TEXT, False
    if isinstance(hidden, KeepLast) and not (column.as_text or is_text(column.type)):
        raise refused(schema, "mask", f"{column.name} is of type {column.type}; of text alone the last characters stay")
    if isinstance(hidden, WithConstant):
        type_, as_text = constant_type(column, hidden.value), False
    # Of a type that was altered other values come from the same ones: to a destination it is another column, of which
    # it does not know what older rows hold.
    attnum = _marked(column.attnum, f"{hidden!r} {source_type(column.type)}")
    made = Column(name, type_, column.nullable, attnum, as_text, filled=True)
    return ShapedColumn(made, column, hidden)


def is_text(type_: PgType) -> bool:
    return type_.kind == "enum" or type_.name in ("text", "varchar", "bpchar", "name", "citext")


def _marked(attnum: int, words: str) -> int:
    return 100_000 + 10_000 * attnum + zlib.crc32(words.encode()) % 10_000 if attnum else 0


def _schema(plan: Plan, options: TableOptions) -> TableSchema:
    source = plan.source
    names = {one.source.name: one.column.name for one in plan.columns}

    def renamed(columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(names[name] for name in columns if name in names)

    primary = renamed(source.primary_key) if set(source.primary_key) <= names.keys() else ()
    made = replace(
        source,
        name=options.rename.name_of(source.name) if options.rename else source.name,
        columns=(*(one.column for one in plan.columns), *plan.made),
        primary_key=primary,
        identity_columns=renamed(source.identity_columns),
    )
    if source.identity == "full":
        made = replace(made, identity_columns=tuple(column.name for column in made.columns))
    if not plan.history:
        return made
    # Each change is a row: told apart by the row that it changed, and when.
    key = (*made.key_columns, LSN.name, ORDINAL.name) if source.key_columns else ()
    columns = tuple(replace(column, nullable=True) for column in made.columns)
    return replace(made, columns=columns, primary_key=key, identity="default", identity_columns=key)
