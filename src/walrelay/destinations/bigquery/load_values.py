"""Spark SQL for a value as BigQuery loads it from Parquet: lists in lists stand in structs, names are BigQuery's."""

from __future__ import annotations

from walrelay.changes.spark_dialect import DIALECT as SPARK
from walrelay.changes.spark_values import literal
from walrelay.destinations.bigquery.dialect import column_name
from walrelay.model.schema import Column, PgType


def landed(column: Column, value: str) -> str:
    return value if column.as_text or not _differs(column.type) else _value(column.type, value, 0)


def _differs(type_: PgType) -> bool:
    if type_.kind == "array" and type_.dimensions > 1:
        return True
    if any(column_name(one.name) != one.name for one in type_.fields):
        return True
    if type_.element is not None and type_.kind == "array" and _is_list(type_.element):
        return True
    return any(_differs(part) for part in _parts(type_))


def _value(type_: PgType, value: str, depth: int) -> str:
    if not _differs(type_):
        return value
    if type_.kind == "composite":
        fields = [
            (column_name(one.name), _value(one.type, f"{value}.{SPARK.quoted(one.name)}", depth))
            for one in type_.fields
        ]
        return _struct(value, fields)
    assert type_.element is not None
    if type_.kind == "range":
        ends = [(name, _value(type_.element, f"{value}.{name}", depth)) for name in ("lower", "upper")]
        return _struct(value, [*ends, *((mark, f"{value}.{mark}") for mark in ("lower_inc", "upper_inc", "empty"))])
    levels = type_.dimensions if type_.kind == "array" else 1
    return _lists(type_.element, value, levels, depth)


def _lists(element: PgType, value: str, levels: int, depth: int) -> str:
    item = f"z{depth}"
    if levels == 1:
        inner = _value(element, item, depth + 1)
        made = f"named_struct('items', {inner})" if _is_list(element) else inner
    else:
        made = f"named_struct('items', {_lists(element, item, levels - 1, depth + 1)})"
    return f"transform({value}, {item} -> {made})"


def _is_list(type_: PgType) -> bool:
    is_vector = type_.kind == "base" and type_.extension == "vector" and type_.name in ("vector", "halfvec")
    return type_.kind in ("array", "vector_array", "multirange") or is_vector


def _struct(value: str, parts: list[tuple[str, str]]) -> str:
    fields = ", ".join(f"{literal(name)}, {part}" for name, part in parts)
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"


def _parts(type_: PgType) -> list[PgType]:
    return [*(one.type for one in type_.fields), *([type_.element] if type_.element else [])]
