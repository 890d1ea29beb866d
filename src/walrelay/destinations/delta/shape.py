"""A table's columns as Delta describes them, each with the attribute number that it has in Postgres.

Column mapping gives every column an id and a name in the files that never change. So a rename or a drop touches no
file, and one that is dropped and added again is another column. The mapping stands in the column's own description,
which every change of it takes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from walrelay.changes.shapes import HeldColumn, Wanted, held_columns, is_wider, match_held
from walrelay.changes.spark_dialect import DIALECT, SPARK
from walrelay.decode.table import arrow_schema
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from walrelay.destinations.delta.table import DeltaFacts

ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
ATTNUM, SOURCE_TYPE, TYPE, ADDED = "walrelay.attnum", "walrelay.source_type", "walrelay.type", "walrelay.added"
LARGEST_ID = "delta.columnMapping.maxColumnId"
MAPPING = {"delta.columnMapping.mode": "name"}
Field = dict[str, Any]


def held_fields(fields: Iterable[Field]) -> tuple[HeldColumn, ...]:
    """The columns that a table describes so."""
    return tuple(_held(one) for one in fields)


def _held(one: Field) -> HeldColumn:
    marks = one["metadata"]
    return HeldColumn(
        one["name"], marks.get(ATTNUM, 0), marks.get(TYPE, ""), marks.get(ADDED, False), marks.get(SOURCE_TYPE, "")
    )


@dataclass
class _Ids:
    """Numbers for columns and the fields in them; none is given twice in a table's life."""

    last: int = 0

    def next(self) -> int:
        self.last += 1
        return self.last


def fresh(schema: TableSchema, facts: DeltaFacts | None) -> tuple[list[Field], dict[str, str]]:
    """The columns of a copy, whose names in the files are those that its columns have, and the mapping's properties."""
    ids = _Ids(int((facts.properties if facts else {}).get(LARGEST_ID, 0)))
    types = spark_fields(schema)
    fields = [_field(types[one.name], one, ids, one.name) for one in held_columns(schema.columns, DIALECT)]
    return fields, {**MAPPING, LARGEST_ID: str(ids.last)}


def altered(schema: TableSchema, facts: DeltaFacts) -> tuple[list[Field], dict[str, str]]:
    """The columns of a table that has rows: those that stay keep their ids and their names in the files."""
    ids = _Ids(int(facts.properties.get(LARGEST_ID, 0)))
    there = {one["name"]: one for one in facts.schema["fields"]}
    types = spark_fields(schema)
    fields = []
    for one in match_held(schema.columns, facts.columns, DIALECT):
        now = one.becomes()
        if one.held is None:
            fields.append(_field(types[now.name], now, ids, f"col-{uuid4()}"))
        else:
            before = there[one.held.name]
            fields.append({**before, "name": now.name, "metadata": {**before["metadata"], **_marks(now)}})
    return fields, {**MAPPING, LARGEST_ID: str(ids.last)}


def widened(schema: TableSchema, facts: DeltaFacts) -> Iterator[Wanted]:
    """Columns whose type holds more than it did, and whatever it held."""
    for one in match_held(schema.columns, facts.columns, DIALECT):
        if one.held is not None and one.held.type != one.type and is_wider(one.held.type, one.type):
            yield one


def spark_fields(schema: TableSchema) -> Mapping[str, Field]:
    """The columns as Spark describes them."""
    from pyspark.sql.pandas.types import from_arrow_type

    return {
        one.name: {
            "name": one.name,
            "type": from_arrow_type(one.type, prefer_timestamp_ntz=True).jsonValue(),
            "nullable": True,
            "metadata": {},
        }
        for one in arrow_schema(schema, SPARK)
    }


def _field(described: Field, column: HeldColumn, ids: _Ids, physical: str) -> Field:
    made = _mapped(described, ids, physical)
    return {**made, "metadata": {**made["metadata"], **_marks(column)}}


def _marks(column: HeldColumn) -> dict[str, Any]:
    return {ATTNUM: column.attnum, SOURCE_TYPE: column.source_type, TYPE: column.type, ADDED: column.added}


def _mapped(described: Field, ids: _Ids, physical: str) -> Field:
    number = ids.next()
    return {**described, "type": _inner(described["type"], ids), "metadata": {ID: number, PHYSICAL: physical}}


def _inner(kind: Any, ids: _Ids) -> Any:
    """A type with the fields in it mapped too, under their own names."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [_mapped(one, ids, one["name"]) for one in kind["fields"]]}
    if kind["type"] == "array":
        return {**kind, "elementType": _inner(kind["elementType"], ids)}
    return kind
