"""Arrow columns in the form in which ClickHouse takes them in: years that it does not have treated by policy, arrays
inside of composites wrapped, and for an array a mark beside it that says whether it is NULL.

Column by column, on what both roads have decoded already. What they have treated (±infinity) is not counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.decode.base import Tally
from walrelay.decode.datetime import DATE_MAX, DATE_MIN, EPOCH_DAYS, INT64_MAX
from walrelay.decode.retarget import list_parts
from walrelay.destinations.clickhouse.dialect import CLICKHOUSE, WRAPPED, is_list, is_marked, levels, wide_decimal
from walrelay.errors import SpecialValueError
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.model.special import Special, SpecialValues

DAY_MICROS = 86_400_000_000
_CLAMPED_DAYS = (DATE_MIN + EPOCH_DAYS, DATE_MAX + EPOCH_DAYS)
"""What decoding makes of ±infinity by the policy `clamp`."""
_CLAMPED_MICROS = (_CLAMPED_DAYS[0] * DAY_MICROS, INT64_MAX - 1)
_MOMENTS = {"timestamp", "timestamptz"}


@dataclass(frozen=True, slots=True)
class Years:
    """The days that the server's types for dates and moments have, since 1970, both ends included."""

    first: int
    last: int

    @classmethod
    def between(cls, first: date, last: date) -> Years:
        epoch = date(1970, 1, 1).toordinal()
        return cls(first.toordinal() - epoch, last.toordinal() - epoch)

    @property
    def micros(self) -> tuple[int, int]:
        return self.first * DAY_MICROS, (self.last + 1) * DAY_MICROS - 1


WIDE = Years(-719_528, 2_932_896)
"""From the year 0, which is 1 BC, to 9999: ClickHouse 26."""
NARROW = Years.between(date(1900, 1, 1), date(2299, 12, 31))
"""ClickHouse before that."""


@dataclass
class Fit:
    """Values of one table's columns for a server."""

    years: Years = WIDE
    special_values: SpecialValues = "null"
    treated: Counter[Special] = field(default_factory=Counter)

    def column(self, array: pa.Array, column: Column, schema: TableSchema) -> pa.Array:
        """Errors name table and column, never a value."""
        if column.as_text:
            return array
        tally = Tally(CLICKHOUSE, self.special_values, self.treated)
        if column.name in schema.key_columns:
            tally = tally.for_keys()
        try:
            return _Form(self.years, tally).value(array, column.type)
        except SpecialValueError as error:
            raise type(error)(
                f"{error.message}, in column {column.name} of {schema.name}",
                context={**error.context, "table": str(schema.name), "column": column.name},
            ) from error


def takes_as_landed(column: Column) -> bool:
    """Whether ClickHouse reads the column from a Parquet file as it is, if its years are ones that it has, and none of
    its arrays is NULL."""
    type_ = column.type
    if column.as_text:
        return True
    if type_.kind == "array" and type_.element is not None:
        return _is_plain(type_.element) and not _has_years(type_.element)
    return _is_plain(type_)


def _is_plain(type_: PgType) -> bool:
    is_flat = type_.kind in {"base", "enum"} and type_.name != "interval" and not is_list(type_)
    return is_flat and wide_decimal(type_) is None


def must_be_looked_at(column: Column) -> bool:
    """Whether what ClickHouse takes as it is may hold what it does not."""
    return not column.as_text and (is_marked(column) or _has_years(column.type))


def _has_years(type_: PgType) -> bool:
    return type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in {"date", *_MOMENTS}


def is_held(array: pa.Array | pa.ChunkedArray, years: Years) -> bool:
    """Whether ClickHouse holds all of what was to be looked at."""
    return array.null_count == 0 if pa.types.is_list(array.type) else within(array, years)


def within(array: pa.Array | pa.ChunkedArray, years: Years) -> bool:
    """Whether ClickHouse has all these dates, or moments."""
    is_date = pa.types.is_date32(array.type)
    first, last = (years.first, years.last) if is_date else years.micros
    ends = pc.min_max(array.cast(pa.int32()) if is_date else array.cast(pa.int64()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (first <= least and most <= last)


def mark(array: pa.Array) -> pa.Array:
    """Whether each is NULL."""
    return array.is_null()


@dataclass(frozen=True, slots=True)
class _Form:
    years: Years
    tally: Tally

    def value(self, array: pa.Array, type_: PgType) -> pa.Array:
        if type_.kind == "base" and type_.schema == "pg_catalog":
            return self._leaf(array, type_)
        if type_.kind == "composite" and type_.fields:
            return self._composite(array, type_)
        if type_.kind == "range":
            return self._range(array, type_)
        if is_list(type_) and type_.element is not None:
            return self._lists(array, type_.element, levels(type_))
        return array

    def _leaf(self, array: pa.Array, type_: PgType) -> pa.Array:
        if type_.name == "date":
            return self._bounded(array, (self.years.first, self.years.last), _CLAMPED_DAYS, Special.DATE_YEARS)
        if type_.name in _MOMENTS:
            return self._bounded(array, self.years.micros, _CLAMPED_MICROS, Special.TIMESTAMP_YEARS)
        if wide_decimal(type_) is not None:
            return self._number(array)
        return array

    def _bounded(self, array: pa.Array, ends: tuple[int, int], counted: tuple[int, int], special: Special) -> pa.Array:
        if within(array, self.years):
            return array
        plain = pa.int32() if special is Special.DATE_YEARS else pa.int64()
        numbers = array.cast(plain)
        low, high = pc.less(numbers, ends[0]), pc.greater(numbers, ends[1])
        beyond = pc.or_(low, high)
        # What stands there for ±infinity was counted when it was decoded.
        known = pc.is_in(numbers, pa.array(counted, plain)) if self.tally.special_values == "clamp" else None
        new = beyond if known is None else pc.and_not(beyond, known)
        self.tally.treat(special, int(pc.sum(new).as_py() or 0))
        if self.tally.special_values == "clamp":
            first, last = (pa.scalar(end, plain) for end in ends)
            return pc.if_else(low, first, pc.if_else(high, last, numbers)).cast(array.type)
        return pc.if_else(beyond, pa.scalar(None, array.type), array)

    def _number(self, array: pa.Array) -> pa.Array:
        """Text of a numeric. NaN is the one value that it may have and a decimal does not."""
        is_nan = pc.equal(array, "NaN")
        self.tally.treat(Special.NUMERIC_NAN, int(pc.sum(is_nan).as_py() or 0))
        return pc.if_else(is_nan, pa.scalar(None, array.type), array)

    def _composite(self, array: pa.StructArray, type_: PgType) -> pa.Array:
        parts = [
            self._wrapped(self.value(part, attribute.type))
            if is_list(attribute.type)
            else self.value(part, attribute.type)
            for part, attribute in zip(array.flatten(), type_.fields, strict=True)
        ]
        return _struct([one.name for one in type_.fields], parts, array.is_valid())

    def _wrapped(self, array: pa.Array) -> pa.Array:
        return _struct([WRAPPED], [array], array.is_valid())

    def _range(self, array: pa.StructArray, type_: PgType) -> pa.Array:
        assert type_.element is not None
        parts = array.flatten()
        bounds = [self.value(part, type_.element) for part in parts[:2]]
        valid = array.is_valid()
        for given, taken in zip(parts, bounds, strict=False):
            # A bound that policy made NULL would read as «unbounded».
            valid = pc.and_(valid, pc.or_(taken.is_valid(), given.is_null()))
        if is_list(type_.element):
            bounds = [self._wrapped(one) for one in bounds]
        return _struct([one.name for one in array.type], [*bounds, *parts[2:]], valid)

    def _lists(self, array: pa.ListArray, element: PgType, depth: int) -> pa.Array:
        totals, inner = list_parts(array)
        if depth > 1:
            values = self._lists(inner, element, depth - 1)
        else:
            values = self.value(inner, element)
            values = self._wrapped(values) if is_list(element) else values
        if values is inner:
            return array
        offsets = np.zeros(len(array) + 1, np.int32)
        np.cumsum(totals, out=offsets[1:])
        made = pa.ListArray.from_arrays(pa.array(offsets), values)
        return made if array.null_count == 0 else _with_nulls(made, array)


def _with_nulls(made: pa.ListArray, array: pa.Array) -> pa.Array:
    """The lists, NULL where those of `array` are."""
    bits: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
    return pa.Array.from_buffers(made.type, len(made), [valid, made.buffers()[1]], children=[made.values])


def _struct(names: Iterable[str], parts: list[pa.Array], valid: pa.Array) -> pa.Array:
    fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pc.invert(valid))
