"""What a Delta table's log says of the values in a file, by which readers leave out files that they need not open.

Taken from the file's own footer, for the types in which Parquet's order and Spark's are the same and a bound can be
said without loss. Left out are doubles (Parquet's bounds know nothing of NaN, which Spark takes for the greatest),
decimals, and text that is longer than a bound should be: no bound is never wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 32
"""Those that come first, as Delta itself has it."""
TEXT = 32
"""Characters of a bound."""


def statistics(file: Path) -> str:
    """Of one file, as its line in the log has them."""
    metadata = pq.read_metadata(file)
    said: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(min(COLUMNS, metadata.num_columns)):
        column = metadata.schema.column(index)
        found = [group.column(index).statistics for group in groups]
        if column.path != column.name or column.max_repetition_level or not all(found):
            continue  # a part of a struct or of an array
        said["nullCount"][column.name] = sum(one.null_count for one in found)
        bounds = _bounds([one for one in found if one.has_min_max])
        if bounds is not None and all(one.has_min_max or not one.num_values for one in found):
            said["minValues"][column.name], said["maxValues"][column.name] = bounds
    return json.dumps(said)


def _bounds(found: Iterable[Any]) -> tuple[Any, Any] | None:
    """The least and the greatest value as JSON, None when they cannot be said."""
    try:
        low, high = [one.min for one in found], [one.max for one in found]
    except (ValueError, OverflowError, pa.ArrowException):
        return None  # a date that Python does not know
    return (_said(min(low)), _said(max(high), up=True)) if low and _can_be_said(low + high) else None


def _can_be_said(values: list[Any]) -> bool:
    kind = type(values[0])
    if kind is str:
        return all(len(value) <= TEXT for value in values)
    if kind is datetime:
        return all(value.year < 9999 for value in values)  # its bound is rounded up
    return kind in (int, date)


def _said(value: Any, *, up: bool = False) -> Any:
    """Instants to the millisecond: a greatest one is rounded up."""
    if isinstance(value, datetime):
        rest = value.microsecond % 1000
        if up and rest:
            value += timedelta(microseconds=1000 - rest)
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + "Z" if value.tzinfo is not None else text
    return value.isoformat() if isinstance(value, date) else value
