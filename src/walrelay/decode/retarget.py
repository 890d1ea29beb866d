"""Columns decoded for `ARROW` (the change log's target), as another target would have decoded them.

Where a type's decoders differ, the Arrow values are laid out as Postgres's bytes again, all at once, and go through the
target's own decoder: the rules for text and special values stay in one place. A value that `ARROW` cannot hold either
(a timestamp after 294247, a numeric NaN, an array of another shape) stays what it was made then, uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.base import ARROW, Fields, Tally, Target, bitmap
from walrelay.decode.datetime import EPOCH_DAYS, EPOCH_MICROS, INT32_MAX, INT64_MAX
from walrelay.decode.nested import list_array
from walrelay.decode.registry import BUILTIN, Make, arrow_type, decoder_for, find_rule
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.schema import PgType, TableSchema
from walrelay.model.special import Special

Numbers = npt.NDArray[Any]


# ------------------------------------------------------------------------------------- Arrow values as Postgres's bytes


def numbers(array: pa.Array, dtype: npt.DTypeLike) -> Numbers:
    """The values' own memory; where the array is NULL they mean nothing."""
    kind = np.dtype(dtype)
    if len(array) == 0:
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * kind.itemsize)


def uuid_bytes(array: pa.Array) -> Numbers:
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    # A copy, because decoders are compiled for memory that may be written to.
    return numbers(storage, "V16").copy()


def time_bytes(array: pa.Array) -> Numbers:
    return numbers(array, np.int64).astype(">i8")


def since_2000(values: Numbers, epoch: int, largest: int) -> Numbers:
    """Counted as Postgres counts, with its integers for ±infinity."""
    moved: Numbers = values - values.dtype.type(epoch)
    moved[values == largest] = largest
    moved[values == -largest] = -largest - 1
    return moved


def date_bytes(array: pa.Array) -> Numbers:
    return since_2000(numbers(array, np.int32), EPOCH_DAYS, INT32_MAX).astype(">i4")


def timestamp_bytes(array: pa.Array) -> Numbers:
    return since_2000(numbers(array, np.int64), EPOCH_MICROS, INT64_MAX).astype(">i8")


def interval_bytes(array: pa.StructArray) -> Numbers:
    out = np.empty(len(array), [("microseconds", ">i8"), ("days", ">i4"), ("months", ">i4")])
    months, days, microseconds = array.flatten()
    out["months"], out["days"] = numbers(months, np.int32), numbers(days, np.int32)
    out["microseconds"] = numbers(microseconds, np.int64)
    return out


def date_is_infinite(array: pa.Array) -> bool:
    return _reaches(array.view(pa.int32()), INT32_MAX, -INT32_MAX)


def timestamp_is_infinite(array: pa.Array) -> bool:
    return _reaches(array.view(pa.int64()), INT64_MAX, -INT64_MAX)


def interval_is_infinite(array: pa.StructArray) -> bool:
    """Perhaps: the decoder looks at all three parts."""
    months = array.flatten()[0]
    return _reaches(months, INT32_MAX, -INT32_MAX - 1)


def _reaches(array: pa.Array, largest: int, smallest: int) -> bool:
    ends = pc.min_max(array)
    return bool(ends["max"].as_py() == largest or ends["min"].as_py() == smallest)


@dataclass(frozen=True)
class Leaf:
    """A type whose values not all targets hold as `ARROW` does."""

    lay_out: Callable[[pa.Array], Numbers]
    special: Special | None = None
    has_special: Callable[[pa.Array], bool] | None = None

    def fields(self, array: pa.Array) -> Fields:
        """The values as they came from Postgres."""
        laid = self.lay_out(array)
        width = laid.dtype.itemsize
        starts = np.arange(0, len(array) * width, width, dtype=np.int32)
        lengths = np.where(_valid(array), np.int32(width), np.int32(-1))
        return Fields(laid.view(np.uint8), starts, lengths)

    def keeps(self, array: pa.Array) -> bool:
        """Whether a target with the same Arrow type takes these very values as they are."""
        return self.has_special is None or not self.has_special(array)


LEAVES: dict[Make | None, Leaf] = {
    BUILTIN["uuid"]: Leaf(uuid_bytes),
    BUILTIN["time"]: Leaf(time_bytes),
    BUILTIN["date"]: Leaf(date_bytes, Special.DATE_INFINITY, date_is_infinite),
    BUILTIN["timestamp"]: Leaf(timestamp_bytes, Special.TIMESTAMP_INFINITY, timestamp_is_infinite),
    BUILTIN["timestamptz"]: Leaf(timestamp_bytes, Special.TIMESTAMP_INFINITY, timestamp_is_infinite),
    BUILTIN["interval"]: Leaf(interval_bytes, Special.INTERVAL_INFINITY, interval_is_infinite),
}


def differs(type_: PgType, target: Target) -> bool:
    """Whether any value of the type may be another one for `target` than for `ARROW`."""
    rule = find_rule(type_)
    if rule is None:
        return False
    leaf = LEAVES.get(rule)
    if leaf is not None:
        held = leaf.special is None or leaf.special in target.holds
        return not held or arrow_type(type_, target) != arrow_type(type_, ARROW)
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return any(differs(part, target) for part in parts)


# -------------------------------------------------------------------------------------------------------------- columns


def retarget(array: pa.Array, type_: PgType, tally: Tally) -> pa.Array:
    """The column, decoded for `ARROW`, as `tally.target` would have decoded it; the same object where nothing differs.

    Special values are treated and counted by `tally`; what lies under a NULL is not looked at.
    """
    if not differs(type_, tally.target):
        return array
    leaf = LEAVES.get(find_rule(type_))
    if leaf is not None:
        return _retarget_leaf(array, type_, leaf, tally)
    if type_.kind == "composite":
        parts = array.flatten()
        taken = [retarget(part, attribute.type, tally) for part, attribute in zip(parts, type_.fields, strict=True)]
        return array if _same(taken, parts) else _struct(array, taken, _valid(array))
    assert type_.element is not None, f"type {type_} has no element"
    if type_.kind == "range":
        return _retarget_ranges(array, type_.element, tally)
    depth = type_.dimensions if type_.kind in {"array", "vector_array"} else 1
    return _retarget_lists(array, type_.element, depth, tally)


def _retarget_leaf(array: pa.Array, type_: PgType, leaf: Leaf, tally: Tally) -> pa.Array:
    decoder = decoder_for(type_, tally.target)
    if decoder.arrow_type == array.type and leaf.keeps(array):
        return array
    return decoder.decode(leaf.fields(array), tally)


def _retarget_lists(array: pa.ListArray, element: PgType, depth: int, tally: Tally) -> pa.Array:
    totals, inner = list_parts(array)
    values = retarget(inner, element, tally) if depth == 1 else _retarget_lists(inner, element, depth - 1, tally)
    if values is inner:
        return array
    return list_array(pa.list_(values.type), bitmap(_valid(array)), totals, values)


def list_parts(array: pa.ListArray) -> tuple[Numbers, pa.Array]:
    """(how many elements each list has, all those elements); a NULL has none.

    `ListArray.flatten` says the same, but fails for lists of uuid when all of them are NULL (pyarrow 26).
    """
    ends = numbers(array.offsets, np.int32)
    if len(ends) == 0:
        return np.empty(0, np.int64), array.values[:0]
    totals = np.diff(ends)
    inner = array.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    valid = _valid(array)
    if totals[~valid].any():
        inner = inner.filter(pa.array(np.repeat(valid, totals)))
        totals = np.where(valid, totals, 0)
    return totals, inner


def _retarget_ranges(array: pa.StructArray, bound: PgType, tally: Tally) -> pa.Array:
    parts = array.flatten()
    bounds = [retarget(part, bound, tally) for part in parts[:2]]
    if _same(bounds, parts[:2]):
        return array
    valid = _valid(array)
    for given, taken in zip(parts, bounds, strict=False):
        if taken.null_count > given.null_count:
            # As in RangeDecoder: a bound that policy made NULL would read as «unbounded».
            valid = valid & (_valid(taken) | ~_valid(given))
    return _struct(array, [*bounds, *parts[2:]], valid)


def _same(taken: list[pa.Array], given: list[pa.Array]) -> bool:
    return all(new is old for new, old in zip(taken, given, strict=True))


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _struct(array: pa.StructArray, children: list[pa.Array], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """A struct with the names of `array`."""
    kind = pa.struct([pa.field(old.name, child.type) for old, child in zip(array.type, children, strict=True)])
    return pa.Array.from_buffers(kind, len(array), [bitmap(valid)], children=children)


# --------------------------------------------------------------------------------------------------------- whole tables


def retarget_batch(batch: pa.RecordBatch, schema: TableSchema, tally: Tally) -> pa.RecordBatch:
    """A table's rows for `tally.target`. Errors name table and column, never a value."""
    columns = _retarget_columns(batch.columns, schema, tally)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def retarget_struct(
    array: pa.StructArray, schema: TableSchema, tally: Tally, *, keys: Collection[str] = ()
) -> pa.StructArray:
    """The same for rows in a struct column (a change's `row`, `old`); a NULL struct stays NULL. `keys` names the
    columns whose values no policy may treat."""
    columns = array.flatten()
    taken = _retarget_columns(columns, schema, tally, keys)
    return array if _same(taken, columns) else _struct(array, taken, _valid(array))


def _retarget_columns(
    columns: list[pa.Array], schema: TableSchema, tally: Tally, keys: Collection[str] = ()
) -> list[pa.Array]:
    done = []
    of_keys = tally.for_keys()
    for array, column in zip(columns, schema.columns, strict=True):
        if column.as_text:
            done.append(array)
            continue
        where = {"table": str(schema.name), "column": column.name}
        try:
            done.append(retarget(array, column.type, of_keys if column.name in keys else tally))
        except BadBytesError as error:
            raise BadBytesError(
                f"{error.reason}, in column {column.name} of {schema.name}",
                position=error.position,
                context={**error.context, **where},
            ) from error
        except SpecialValueError as error:
            raise type(error)(
                f"{error.message}, in column {column.name} of {schema.name}",
                context={**error.context, **where},
            ) from error
    return done
