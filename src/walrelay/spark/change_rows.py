"""Changes of the log as rows for Spark: typed structs, or JSON text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.spark_dialect import SPARK
from walrelay.decode.base import TEXT, Tally, Target
from walrelay.decode.exact import InexactError, exact_column
from walrelay.decode.images import struct_of
from walrelay.decode.json_text import json_objects
from walrelay.decode.retarget import list_parts, retarget_struct
from walrelay.decode.table import arrow_schema
from walrelay.log.failures import LogSchemaChangedError
from walrelay.log.reader import TableBatch
from walrelay.log.view import LogView
from walrelay.model.column_match import match_columns
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import SpecialValues


def typed(one: TableBatch, declared: TableSchema, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as structs of the declared columns, whatever shape the table had at the time."""
    alignment = Alignment.of(declared, one.version.schema)
    row, old = (_aligned(_image(one, name, SPARK, policy), alignment) for name in ("row", "old"))
    return _assembled(one, row, old, _renamed(one.batch.column("unchanged"), alignment))


def refuse_doubts(log: LogView, then: SchemaVersion, declared: SchemaVersion) -> None:
    """Between the two shapes it must be known which column is which (`SchemaVersion.doubt`)."""
    first, last = sorted((then.version, declared.version))
    if any(log.version(declared.schema.id, number).doubt for number in range(first + 1, last + 1)):
        raise LogSchemaChangedError(
            f"which columns of {declared.schema.name} are which of those that it had then is not known",
            context={"table": str(declared.schema.name)},
        )


def untyped(one: TableBatch, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as JSON text."""
    row, old = (json_objects_or_null(_image(one, name, TEXT, policy)) for name in ("row", "old"))
    return _assembled(one, row, old, one.batch.column("unchanged"))


def json_objects_or_null(image: pa.StructArray) -> pa.Array:
    """JSON text, and NULL (not the word) where there is no row."""
    if image.null_count == len(image):
        return pa.nulls(len(image), pa.string())
    text = json_objects(image)
    return pc.if_else(image.is_valid(), text, None) if image.null_count else text


def _image(one: TableBatch, name: str, target: Target, policy: SpecialValues) -> pa.StructArray:
    return retarget_struct(one.batch.column(name), one.version.schema, Tally(target, policy))


def _assembled(one: TableBatch, row: pa.Array, old: pa.Array, unchanged: pa.Array) -> pa.RecordBatch:
    batch = one.batch
    names = ["commit_lsn", "end_lsn", "ordinal", "xid", "commit_time"]
    columns = [batch.column(name) for name in names]
    columns.append(pa.repeat(str(one.version.schema.name), batch.num_rows))
    columns += [batch.column("op"), batch.column("schema_version"), row, old]
    columns += [batch.column("old_kind"), unchanged]
    names += ["table", "op", "schema_version", "row", "old", "old_kind", "unchanged"]
    return pa.RecordBatch.from_arrays(columns, names)


# ------------------------------------------------------------------------------------------------------ another shape


@dataclass(frozen=True)
class Alignment:
    """Which column of the shape that the changes have each declared one is."""

    declared: TableSchema
    then: TableSchema
    places: tuple[int | None, ...]
    """In `then`; None where it lacks the column."""
    wanted: pa.StructType

    @classmethod
    def of(cls, declared: TableSchema, then: TableSchema) -> Alignment:
        """Raises LogSchemaChangedError where it cannot be told: NULL might be wrong, and nobody would notice."""
        matched = match_columns(declared.columns, then.columns)
        for here, there in matched.doubts:
            name, former = declared.columns[here].name, then.columns[there].name
            raise LogSchemaChangedError(
                f"whether column {name} of {declared.name} was {former} before is not known",
                context={"table": str(declared.name), "column": name},
            )
        return cls(declared, then, matched.places, pa.struct(list(arrow_schema(declared, SPARK))))

    @property
    def is_same(self) -> bool:
        """Whether all columns are where they were, by the same names."""
        names = [column.name for column in self.declared.columns]
        return self.places == tuple(range(len(self.then.columns))) and names == [c.name for c in self.then.columns]


def _aligned(image: pa.StructArray, alignment: Alignment) -> pa.StructArray:
    """A column that was not there yet, or is no more, is NULL; one of another type is converted exactly."""
    wanted, declared, then = alignment.wanted, alignment.declared.columns, alignment.then.columns
    if alignment.is_same and image.type == wanted:
        return image
    flat = image.flatten()
    columns = []
    for column, field, place in zip(declared, wanted, alignment.places, strict=True):
        if place is None:
            columns.append(pa.nulls(len(image), field.type))
            continue
        try:
            columns.append(exact_column(flat[place], then[place], column, field.type))
        except InexactError as error:
            table = str(alignment.declared.name)
            raise LogSchemaChangedError(
                f"column {column.name} of {table} had another type then, which cannot be converted: {error}",
                context={"table": table, "column": column.name},
            ) from error
    return struct_of(columns, list(wanted), len(image), image.is_null() if image.null_count else None)


def _renamed(unchanged: pa.ListArray, alignment: Alignment) -> pa.ListArray:
    """The lists of columns by their declared names, without those that are no more; NULL when none is left."""
    if alignment.is_same or unchanged.null_count == len(unchanged):
        return unchanged
    then = pa.array([column.name for column in alignment.then.columns], pa.string())
    names: list[str | None] = [None] * len(then)
    for column, place in zip(alignment.declared.columns, alignment.places, strict=True):
        if place is not None:
            names[place] = column.name
    totals, values = list_parts(unchanged)
    now = pa.array(names, pa.string()).take(pc.index_in(values, value_set=then))
    owners = np.repeat(np.arange(len(unchanged)), totals)
    left = np.bincount(owners[now.is_valid().to_numpy(zero_copy_only=False)], minlength=len(unchanged))
    offsets = np.zeros(len(unchanged) + 1, dtype=np.int32)
    np.cumsum(left, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), now.drop_null(), mask=pa.array(left == 0))
