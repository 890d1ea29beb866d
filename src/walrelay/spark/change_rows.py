"""Changes of the log as rows for Spark: typed structs, or JSON text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.base import SPARK, TEXT, Tally, Target
from walrelay.decode.json_text import json_objects
from walrelay.decode.retarget import retarget_struct
from walrelay.decode.table import arrow_schema
from walrelay.log.failures import LogSchemaChangedError
from walrelay.log.reader import TableBatch
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues


def typed(one: TableBatch, declared: TableSchema, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as structs of the declared columns, whatever shape the table had at the time."""
    wanted = pa.struct(list(arrow_schema(declared, SPARK)))
    images = (_image(one, name, SPARK, policy) for name in ("row", "old"))
    return _assembled(one, *(_aligned(image, wanted, declared) for image in images))


def untyped(one: TableBatch, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as JSON text."""
    return _assembled(one, *(json_objects_or_null(_image(one, name, TEXT, policy)) for name in ("row", "old")))


def json_objects_or_null(image: pa.StructArray) -> pa.Array:
    """JSON text, and NULL (not the word) where there is no row."""
    if image.null_count == len(image):
        return pa.nulls(len(image), pa.string())
    text = json_objects(image)
    return pc.if_else(image.is_valid(), text, None) if image.null_count else text


def _image(one: TableBatch, name: str, target: Target, policy: SpecialValues) -> pa.StructArray:
    return retarget_struct(one.batch.column(name), one.version.schema, Tally(target, policy))


def _assembled(one: TableBatch, row: pa.Array, old: pa.Array) -> pa.RecordBatch:
    batch = one.batch
    names = ["commit_lsn", "end_lsn", "ordinal", "xid", "commit_time"]
    columns = [batch.column(name) for name in names]
    columns.append(pa.repeat(str(one.version.schema.name), batch.num_rows))
    columns += [batch.column("op"), batch.column("schema_version"), row, old]
    columns += [batch.column("old_kind"), batch.column("unchanged")]
    names += ["table", "op", "schema_version", "row", "old", "old_kind", "unchanged"]
    return pa.RecordBatch.from_arrays(columns, names)


def _aligned(image: pa.StructArray, wanted: pa.StructType, declared: TableSchema) -> pa.StructArray:
    """By name: a column that was not there yet, or is no more, is NULL; one of another type is converted exactly."""
    if image.type == wanted or wanted.num_fields == 0:
        return image
    here = {image.type.field(place).name: place for place in range(image.type.num_fields)}
    flat = image.flatten()
    columns = []
    for place in range(wanted.num_fields):
        want = wanted.field(place)
        if want.name not in here:
            columns.append(pa.nulls(len(image), want.type))
            continue
        try:
            columns.append(flat[here[want.name]].cast(want.type))
        except pa.ArrowException as error:
            raise LogSchemaChangedError(
                f"column {want.name} of {declared.name} had another type then, which cannot be converted",
                context={"table": str(declared.name), "column": want.name},
            ) from error
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
