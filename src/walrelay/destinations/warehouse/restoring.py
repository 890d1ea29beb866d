"""DuckDB SQL for values that were read from a warehouse, in the types that DuckDB has for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from walrelay.changes.dialect import RANGE_MARKS
from walrelay.destinations.duckdb.dialect import DIALECT, quoted
from walrelay.model.schema import Column, PgType

INTERVAL = "to_months({0}.months::INTEGER) + to_days({0}.days::INTEGER) + to_microseconds({0}.microseconds::BIGINT)"


class Restoring(ABC):
    """Leaf by leaf, inside of arrays, ranges and composites too."""

    def column(self, column: Column, value: str) -> str:
        return f"{value}::VARCHAR" if column.as_text else self.value(column.type, self.begun(column.type, value), 0)

    def begun(self, type_: PgType, value: str) -> str:
        """The column's value as one of DuckDB's nested types, if it is nested."""
        return value

    @abstractmethod
    def field(self, name: str) -> str:
        """What an attribute is called there."""

    @abstractmethod
    def item(self, element: str, is_list: bool) -> str:
        """An element of an array, which may be an array again."""

    @abstractmethod
    def leaf(self, type_: PgType, value: str) -> str: ...

    def value(self, type_: PgType, x: str, depth: int) -> str:
        if type_.kind == "composite" and type_.fields:
            parts = [
                f"{quoted(one.name)} := {self.value(one.type, f'({x}).{quoted(self.field(one.name))}', depth)}"
                for one in type_.fields
            ]
            return _struct(x, parts)
        if type_.kind == "range":
            assert type_.element is not None
            ends = [f"{end} := {self.value(type_.element, f'({x}).{end}', depth)}" for end in ("lower", "upper")]
            return _struct(x, [*ends, *(f"{mark} := ({x}).{mark}" for mark in RANGE_MARKS)])
        if type_.element is not None:
            return self._items(type_.element, x, 1 if type_.kind == "multirange" else type_.dimensions, depth)
        if is_interval(type_):
            return f"CASE WHEN {x} IS NOT NULL THEN {INTERVAL.format(x)} END"
        if is_vector(type_):
            return f"CAST({x} AS FLOAT[])"
        return self.leaf(type_, x)

    def _items(self, element: PgType, x: str, levels: int, depth: int) -> str:
        loop = f"r{depth}"
        is_list = levels > 1 or is_list_type(element)
        item = self.item(loop, is_list)
        inner = (
            self.value(element, item, depth + 1) if levels == 1 else self._items(element, item, levels - 1, depth + 1)
        )
        return f"list_transform({x}, lambda {loop}: {inner})"


def plain(type_: PgType, value: str) -> str:
    """By a cast to DuckDB's own type."""
    return f"CAST({value} AS {DIALECT.type_name(type_)})"


def is_interval(type_: PgType) -> bool:
    return type_.kind == "base" and type_.schema == "pg_catalog" and type_.name == "interval"


def is_vector(type_: PgType) -> bool:
    return type_.kind == "base" and type_.extension == "vector" and type_.name in ("vector", "halfvec")


def is_list_type(type_: PgType) -> bool:
    return type_.kind in ("array", "vector_array", "multirange") or is_vector(type_)


def _struct(value: str, parts: Sequence[str]) -> str:
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"
