"""How Spark's own reader reads the log's files, and SQL that makes of a value there what a destination holds.

The log holds values as `ARROW` does. Where a target holds them otherwise (uuid and time as text, ±infinity by policy)
an expression says how, also inside arrays, ranges and composites; everything else is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from walrelay.changes.dialect import RANGE_MARKS
from walrelay.changes.spark_dialect import DIALECT
from walrelay.decode.base import ARROW, Target
from walrelay.decode.datetime import DATE_MAX, DATE_MIN, EPOCH_DAYS, INT32_MAX, INT64_MAX
from walrelay.decode.retarget import differs
from walrelay.model.schema import Column, PgType
from walrelay.model.special import Special, SpecialValues

LOG = replace(
    DIALECT,
    target=ARROW,
    # Spark 4.1 has no type for a time of the day, and reads it as what it is: microseconds.
    flat={**DIALECT.flat, pa.time64("us"): "BIGINT"},
    own={**DIALECT.own, "uuid": "BINARY"},
)
"""What Spark calls the types of the log's columns."""
BARE = "BOOLEAN"
"""How the log stores a row without columns."""
_LATEST, _EARLIEST = "+294247-01-10 04:00:54.775806", "-4713-11-24 00:00:00"
"""The ends of what a timestamp can be; beyond them is what stands for ±infinity."""


def change_ddl(columns: Iterable[Column]) -> str:
    """The columns of a change in the log, with the table's own inside of `row` and `old`."""
    row = log_row_type(columns)
    return (
        "commit_lsn BIGINT, end_lsn BIGINT, ordinal BIGINT, xid BIGINT, commit_time TIMESTAMP, op STRING,"
        f" `row` {row}, `old` {row}, old_kind STRING, `unchanged` ARRAY<STRING>"
    )


def log_row_type(columns: Iterable[Column]) -> str:
    fields = [(LOG.quoted(one.name), LOG.column_type(one)) for one in columns]
    return LOG.struct_of(fields) if fields else BARE


def literal(text: str) -> str:
    """As Spark's SQL writes a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a target can hold, and what becomes of the rest."""

    target: Target
    special_values: SpecialValues

    def value(self, column: Column, value: str) -> str:
        """SQL for the column's value, where `value` is SQL for what the log has."""
        if column.as_text or not differs(column.type, self.target):
            return value
        return self._value(column.type, value, 0)

    def specials(self, column: Column) -> list[Special]:
        """Kinds of value that the column may hold and the target does not."""
        if column.as_text:
            return []
        return sorted({kind for kind in _kinds(column.type) if kind not in self.target.holds}, key=lambda k: k.name)

    def count(self, column: Column, value: str, special: Special) -> str:
        """SQL for how many values of this kind are in the column's value."""
        return _count(column.type, value, special, 0)

    def _value(self, type_: PgType, value: str, depth: int) -> str:
        if not differs(type_, self.target):
            return value
        if type_.kind == "base":
            return self._leaf(type_.name, value)
        if type_.kind == "composite":
            parts = [
                (one.name, self._value(one.type, f"{value}.{LOG.quoted(one.name)}", depth)) for one in type_.fields
            ]
            return _struct(value, parts)
        assert type_.element is not None
        if type_.kind == "range":
            return self._range(type_.element, value, depth)
        element, levels = type_.element, _levels(type_)
        return _mapped(value, levels, depth, lambda item, inner: self._value(element, item, inner))

    def _range(self, bound: PgType, value: str, depth: int) -> str:
        ends = [(name, self._value(bound, f"{value}.{name}", depth)) for name in ("lower", "upper")]
        made = _struct(value, [*ends, *((mark, f"{value}.{mark}") for mark in RANGE_MARKS)])
        # A bound that policy made NULL would read as «unbounded».
        lost = " OR ".join(f"({value}.{name} IS NOT NULL AND {end} IS NULL)" for name, end in ends)
        return f"CASE WHEN NOT ({lost}) THEN {made} END"

    def _leaf(self, name: str, value: str) -> str:
        if name in _AS_TEXT:
            return _AS_TEXT[name](value)
        low, high = _CLAMPED.get(name, (value, value)) if self.special_values == "clamp" else ("NULL", "NULL")
        is_less, is_more = _BEYOND[name]
        return f"CASE WHEN {is_less.format(value)} THEN {low} WHEN {is_more.format(value)} THEN {high} ELSE {value} END"


_SPECIALS = {
    "date": Special.DATE_INFINITY,
    "timestamp": Special.TIMESTAMP_INFINITY,
    "timestamptz": Special.TIMESTAMP_INFINITY,
    "interval": Special.INTERVAL_INFINITY,
}
_NTZ, _LTZ = "TIMESTAMP_NTZ'{}'", "TIMESTAMP'{}Z'"
_BEYOND = {
    "date": (f"unix_date({{0}}) = {-INT32_MAX}", f"unix_date({{0}}) = {INT32_MAX}"),
    "timestamp": (f"{{0}} < {_NTZ.format(_EARLIEST)}", f"{{0}} > {_NTZ.format(_LATEST)}"),
    "timestamptz": (f"{{0}} < {_LTZ.format(_EARLIEST)}", f"{{0}} > {_LTZ.format(_LATEST)}"),
    "interval": (
        f"({{0}}.months = {-INT32_MAX - 1} AND {{0}}.days = {-INT32_MAX - 1} AND {{0}}.microseconds < {-INT64_MAX}L)",
        f"({{0}}.months = {INT32_MAX} AND {{0}}.days = {INT32_MAX} AND {{0}}.microseconds = {INT64_MAX}L)",
    ),
}
"""How −infinity and +infinity look."""
_CLAMPED = {
    "date": (f"date_from_unix_date({DATE_MIN + EPOCH_DAYS})", f"date_from_unix_date({DATE_MAX + EPOCH_DAYS})"),
    "timestamp": (_NTZ.format(_EARLIEST), _NTZ.format(_LATEST)),
    "timestamptz": (_LTZ.format(_EARLIEST), _LTZ.format(_LATEST)),
}


def _kinds(type_: PgType) -> Iterable[Special]:
    if type_.kind == "base":
        if type_.schema == "pg_catalog" and type_.name in _SPECIALS:
            yield _SPECIALS[type_.name]
        return
    for part in [*(one.type for one in type_.fields), *([type_.element] if type_.element else [])]:
        yield from _kinds(part)


def _count(type_: PgType, value: str, special: Special, depth: int) -> str:
    if special not in _kinds(type_):
        return "0"
    if type_.kind == "base":
        is_less, is_more = _BEYOND[type_.name]
        return f"CASE WHEN {is_less.format(value)} OR {is_more.format(value)} THEN 1 ELSE 0 END"
    if type_.kind == "composite":
        parts = [_count(one.type, f"{value}.{LOG.quoted(one.name)}", special, depth) for one in type_.fields]
        return f"({' + '.join(parts)})"
    assert type_.element is not None
    if type_.kind == "range":
        parts = [_count(type_.element, f"{value}.{name}", special, depth) for name in ("lower", "upper")]
        return f"({' + '.join(parts)})"
    element = type_.element
    counted = _mapped(value, 1, depth, lambda item, inner: _inner_count(type_, element, item, special, inner))
    return f"coalesce(aggregate({counted}, 0, (a{depth}, b{depth}) -> a{depth} + b{depth}), 0)"


def _inner_count(type_: PgType, element: PgType, item: str, special: Special, depth: int) -> str:
    levels = _levels(type_)
    if levels == 1:
        return _count(element, item, special, depth)
    return _count(replace(type_, dimensions=levels - 1), item, special, depth)


def _levels(type_: PgType) -> int:
    return type_.dimensions if type_.kind in {"array", "vector_array"} else 1


def _mapped(value: str, levels: int, depth: int, inner: Callable[[str, int], str]) -> str:
    """Each element of a list, of lists of lists where there are several levels."""
    item = f"x{depth}"
    body = inner(item, depth + 1) if levels == 1 else _mapped(item, levels - 1, depth + 1, inner)
    return f"transform({value}, {item} -> {body})"


def _struct(value: str, parts: Iterable[tuple[str, str]]) -> str:
    fields = ", ".join(f"{literal(name)}, {part}" for name, part in parts)
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"


def _uuid(value: str) -> str:
    pieces = ((1, 4), (5, 2), (7, 2), (9, 2), (11, 6))
    return (
        "lower(concat(" + ", '-', ".join(f"hex(substr({value}, {start}, {length}))" for start, length in pieces) + "))"
    )


def _time(value: str) -> str:
    """As Postgres prints it: no more digits after the point than it has."""
    parts = (f"{value} div 3600000000", f"{value} div 60000000 % 60", f"{value} div 1000000 % 60")
    clock = ", ':', ".join(f"lpad({part}, 2, '0')" for part in parts)
    fraction = f"{value} % 1000000"
    digits = f"concat('.', rtrim('0', lpad({fraction}, 6, '0')))"
    return f"concat({clock}, CASE WHEN {fraction} = 0 THEN '' ELSE {digits} END)"


_AS_TEXT = {"uuid": _uuid, "time": _time}
"""Types that differ from `ARROW` only where a target wants their text."""
