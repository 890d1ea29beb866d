"""Arrow batches as plain Python rows, also where Python's own types give up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from walrelay.decode.datetime import INT32_MAX, INT64_MAX

_INFINITE = {INT64_MAX: "infinity", -INT64_MAX: "-infinity", INT32_MAX: "infinity", -INT32_MAX: "-infinity"}


def plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """A dictionary a row."""
    names = batch.schema.names
    if not names:
        yield from ({} for _ in range(batch.num_rows))
        return
    for values in zip(*(plain_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def plain_values(column: pa.Array) -> list[Any]:
    """Python values. Python's dates end at the years 1 and 9999: a column that goes beyond comes as text."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        pass
    text = column.cast(_with_dates_as_text(column.type)).to_pylist()
    if pa.types.is_nested(column.type):
        return text  # type: ignore[no-any-return]
    numbers = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).to_pylist()
    return [_INFINITE.get(number, shown) for number, shown in zip(numbers, text, strict=True)]


def _with_dates_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_with_dates_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_dates_as_text(field.type)) for field in kind])
    return kind
