"""A table's columns as Iceberg has them, each with the attribute number that it has in Postgres.

Iceberg gives every column an id that never changes, and files that it writes carry these ids. So a rename or a drop
touches no file, and one that is dropped and added again is another column. Which attribute number has which id stands
in a property. The files of a copy carry no ids but the names that columns had then: to these the table's name mapping
is held, whatever its columns are called later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from walrelay.changes.shapes import HeldColumn, held_columns, is_wider, match_held
from walrelay.changes.spark_dialect import DIALECT
from walrelay.destinations.iceberg.catalog import Catalog
from walrelay.model.schema import Column, TableSchema

ICEBERG = replace(DIALECT, flat={**DIALECT.flat, pa.int16(): "INT"})
"""What Spark calls the types that Iceberg has: none of them is shorter than an int."""
COLUMNS, NAMES = "walrelay.columns", "schema.name-mapping.default"


def columns_ddl(columns: Iterable[Column]) -> str:
    return ", ".join(f"{ICEBERG.quoted(one.name)} {ICEBERG.column_type(one)}" for one in columns)


def held_of(fields: Iterable[tuple[int, str]], said: str | None) -> tuple[HeldColumn, ...]:
    """The columns that a table has, by id and name, with what the property says of them."""
    known: Mapping[str, Any] = json.loads(said) if said else {}
    return tuple(HeldColumn(name, *known.get(str(number), (0, "", False, ""))) for number, name in fields)


def fresh(catalog: Catalog, transaction: Any, schema: TableSchema) -> dict[str, str]:
    """Properties of a table that is just made: whose its columns are, and under which names its files have them."""
    ids = {field.name(): field.fieldId() for field in transaction.table().schema().columns()}
    mapping = catalog.iceberg.mapping
    names = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(transaction.table().schema()))
    return {NAMES: names, **_said((ids[one.name], one) for one in held_columns(schema.columns, ICEBERG))}


def alter(catalog: Catalog, transaction: Any, schema: TableSchema, held: tuple[HeldColumn, ...]) -> dict[str, str]:
    """Give the table these columns; the properties that then are to be set. Names that others have left are free only
    after a step of its own."""
    wanted = match_held(schema.columns, held, ICEBERG)
    ids = {field.name(): field.fieldId() for field in transaction.table().schema().columns()}
    kept = {one.held.name: one for one in wanted if one.held is not None}
    changed, became = transaction.updateSchema(), {}
    for before in held:
        one = kept.get(before.name)
        if one is None:
            changed.deleteColumn(before.name)
            continue
        became[one.column.name] = ids[before.name]
        if one.type != before.type and is_wider(before.type, one.type):
            changed.updateColumn(before.name, _type(catalog, one.column).asPrimitiveType())
        if one.column.name != before.name:
            changed.renameColumn(before.name, one.column.name)
    changed.commit()
    if new := [one for one in wanted if one.held is None]:
        added = transaction.updateSchema()
        for one in new:
            added.addColumn(None, one.column.name, _type(catalog, one.column), None)
        added.commit()
        made = {field.name(): field.fieldId() for field in transaction.table().schema().columns()}
        became.update({one.column.name: made[one.column.name] for one in new})
    return _said((became[one.column.name], one.becomes()) for one in wanted)


def _type(catalog: Catalog, column: Column) -> Any:
    return catalog.schema(columns_ddl([column])).columns()[0].type()


def _said(columns: Iterable[tuple[int, HeldColumn]]) -> dict[str, str]:
    return {COLUMNS: json.dumps({n: (one.attnum, one.type, one.added, one.source_type) for n, one in columns})}
