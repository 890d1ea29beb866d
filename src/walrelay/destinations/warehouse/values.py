"""Spark SQL that makes of a value what a warehouse holds, and counts what that cannot be.

Warehouses know the years 1 to 9999, and BigQuery no NULL in an array or in place of one; Postgres and Spark know more.
What goes beyond is treated by policy: `null` and `clamp` as everywhere; of arrays both leave NULLs out, and put an
empty one in place of none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from walrelay.changes.dialect import RANGE_MARKS
from walrelay.changes.spark_dialect import DIALECT
from walrelay.changes.spark_values import Holding, literal
from walrelay.model.schema import Column, PgType
from walrelay.model.special import Special, SpecialValues

_NTZ, _LTZ = "TIMESTAMP_NTZ'{}'", "TIMESTAMP'{}Z'"
_FIRST, _LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
_ENDS = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamp": (_NTZ.format(_FIRST), _NTZ.format(_LAST)),
    "timestamptz": (_LTZ.format(_FIRST), _LTZ.format(_LAST)),
}
"""The first and the last that a warehouse has."""
_ENDLESS = {
    "date": ("DATE'-4713-11-24'", "DATE'+5874897-12-31'"),
    "timestamp": (_NTZ.format("-4713-11-24 00:00:00"), _NTZ.format("+294247-01-10 04:00:54.775806")),
    "timestamptz": (_LTZ.format("-4713-11-24 00:00:00"), _LTZ.format("+294247-01-10 04:00:54.775806")),
}
"""What a copy's tasks have put in place of ±infinity where the policy is `clamp`: counted there already."""
_YEARS = {"date": Special.DATE_YEARS, "timestamp": Special.TIMESTAMP_YEARS, "timestamptz": Special.TIMESTAMP_YEARS}
_VECTORS = ("vector", "halfvec")


@dataclass(frozen=True, slots=True)
class Fitting:
    """Of values in Spark's own types; `array_nulls` says whether the warehouse has them."""

    special_values: SpecialValues
    array_nulls: bool

    def value(self, column: Column, value: str) -> str:
        return value if column.as_text or not self._differs(column.type) else self._value(column.type, value, 0)

    def specials(self, column: Column) -> list[Special]:
        if column.as_text:
            return []
        return sorted(set(self._kinds(column.type)), key=lambda one: one.name)

    def count(self, column: Column, value: str, special: Special) -> str:
        """SQL for how many values of this kind are in the column's value."""
        return self._count(column.type, value, special, 0)

    # ------------------------------------------------------------------------------------------------------- values

    def _kinds(self, type_: PgType) -> Iterable[Special]:
        if type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in _YEARS:
            yield _YEARS[type_.name]
        if _is_list(type_) and not self.array_nulls:
            yield Special.ARRAY_NULL
        for part in _parts(type_):
            yield from self._kinds(part)

    def _differs(self, type_: PgType) -> bool:
        return any(True for _ in self._kinds(type_))

    def _value(self, type_: PgType, value: str, depth: int) -> str:
        if not self._differs(type_):
            return value
        if type_.kind == "base" and not _is_list(type_):
            return self._leaf(type_.name, value)
        if type_.kind == "composite":
            fields = [
                (one.name, self._value(one.type, f"{value}.{DIALECT.quoted(one.name)}", depth)) for one in type_.fields
            ]
            return _struct(value, fields)
        if type_.kind == "range":
            return self._range(_inner(type_), value, depth)
        item = f"y{depth}"
        inner = self._value(_inner(type_), item, depth + 1)
        made = value if inner == item else f"transform({value}, {item} -> {inner})"
        if self.array_nulls:
            return made
        return f"coalesce(filter({made}, {item} -> {item} IS NOT NULL), array())"

    def _range(self, bound: PgType, value: str, depth: int) -> str:
        ends = [(name, self._value(bound, f"{value}.{name}", depth)) for name in ("lower", "upper")]
        made = _struct(value, [*ends, *((mark, f"{value}.{mark}") for mark in RANGE_MARKS)])
        # A bound that policy made NULL would read as «unbounded».
        lost = " OR ".join(f"({value}.{name} IS NOT NULL AND {end} IS NULL)" for name, end in ends)
        return f"CASE WHEN NOT ({lost}) THEN {made} END"

    def _leaf(self, name: str, value: str) -> str:
        first, last = _ENDS[name]
        low, high = (first, last) if self.special_values == "clamp" else ("NULL", "NULL")
        return f"CASE WHEN {value} < {first} THEN {low} WHEN {value} > {last} THEN {high} ELSE {value} END"

    # ------------------------------------------------------------------------------------------------------- counts

    def _count(self, type_: PgType, value: str, special: Special, depth: int) -> str:
        if special not in self._kinds(type_):
            return "0"
        if type_.kind == "base" and not _is_list(type_):
            first, last = _ENDS[type_.name]
            outside = f"({value} < {first} OR {value} > {last})"
            if self.special_values == "clamp":
                outside += f" AND {value} NOT IN ({', '.join(_ENDLESS[type_.name])})"
            return f"CASE WHEN {outside} THEN 1 ELSE 0 END"
        if type_.kind == "composite":
            parts = [
                self._count(one.type, f"{value}.{DIALECT.quoted(one.name)}", special, depth) for one in type_.fields
            ]
            return f"CASE WHEN {value} IS NOT NULL THEN {' + '.join(parts)} ELSE 0 END"
        if type_.kind == "range":
            bounds = [self._count(_inner(type_), f"{value}.{name}", special, depth) for name in ("lower", "upper")]
            return f"({' + '.join(bounds)})"
        return self._count_items(type_, value, special, depth)

    def _count_items(self, type_: PgType, value: str, special: Special, depth: int) -> str:
        item, none = f"y{depth}", 1 if special is Special.ARRAY_NULL else 0
        inner = self._count(_inner(type_), item, special, depth + 1)
        each = f"CASE WHEN {item} IS NULL THEN {none} ELSE {inner} END"
        total = f"aggregate(transform({value}, {item} -> {each}), 0, (a{depth}, b{depth}) -> a{depth} + b{depth})"
        return f"CASE WHEN {value} IS NULL THEN {none} ELSE {total} END"


@dataclass(frozen=True, slots=True)
class WarehouseHolding(Holding):
    """What the log has, as a warehouse holds it."""

    array_nulls: bool = True

    @property
    def _fitting(self) -> Fitting:
        return Fitting(self.special_values, self.array_nulls)

    def value(self, column: Column, value: str) -> str:
        return self._fitting.value(column, Holding.value(self, column, value))

    def specials(self, column: Column) -> list[Special]:
        return [*Holding.specials(self, column), *self._fitting.specials(column)]

    def count(self, column: Column, value: str, special: Special) -> str:
        """Of the new row of a change, `row`: one that has none, or left the value out, brings nothing."""
        if special in Holding.specials(self, column):
            return Holding.count(self, column, value, special)
        finite = Holding.value(replace(self, special_values="null"), column, value)
        counted = Fitting("null", self.array_nulls).count(column, finite, special)
        sent = f"`row` IS NOT NULL AND NOT coalesce(array_contains(`unchanged`, {literal(column.name)}), false)"
        return f"CASE WHEN {sent} THEN {counted} ELSE 0 END"


def _is_list(type_: PgType) -> bool:
    """Whether it is an array to a warehouse."""
    return type_.kind in ("array", "vector_array", "multirange") or _is_vector(type_)


def _is_vector(type_: PgType) -> bool:
    return type_.kind == "base" and type_.extension == "vector" and type_.name in _VECTORS


def _inner(type_: PgType) -> PgType:
    """Of a list what its elements are: of one with several dimensions lists again."""
    if _is_vector(type_):
        return PgType(700, "float4")
    assert type_.element is not None, f"{type_} has no element"
    if type_.kind in ("array", "vector_array") and type_.dimensions > 1:
        return replace(type_, dimensions=type_.dimensions - 1)
    return type_.element


def _parts(type_: PgType) -> list[PgType]:
    return [*(one.type for one in type_.fields), *([type_.element] if type_.element else [])]


def _struct(value: str, parts: Iterable[tuple[str, str]]) -> str:
    fields = ", ".join(f"{literal(name)}, {part}" for name, part in parts)
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"
