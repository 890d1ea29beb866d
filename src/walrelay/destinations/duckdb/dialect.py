"""DuckDB's names for types, and how a landed Parquet column is selected into its type."""

from __future__ import annotations

import pyarrow as pa

from walrelay.changes.dialect import Dialect
from walrelay.decode.base import Target
from walrelay.model.schema import Column, PgType
from walrelay.model.special import Special

DUCKDB = Target("duckdb", frozenset({Special.TIMESTAMP_INFINITY, Special.DATE_INFINITY}))
DIALECT = Dialect(
    target=DUCKDB,
    flat={
        pa.bool_(): "BOOLEAN",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR",
        pa.large_string(): "VARCHAR",
        pa.binary(): "BLOB",
        pa.large_binary(): "BLOB",
        pa.date32(): "DATE",
        pa.time64("us"): "TIME",
        pa.timestamp("us"): "TIMESTAMP",
        pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
    },
    list_of=lambda inner: f"{inner}[]",
    struct_of=lambda fields: f"STRUCT({', '.join(f'{name} {type_}' for name, type_ in fields)})",
    quote='"',
    own={"interval": "INTERVAL", "uuid": "UUID"},
)
quoted, column_type = DIALECT.quoted, DIALECT.column_type


def projection(column: Column, landed: str) -> str:
    """SQL for the column's value. Nearly all are taken as they are; intervals land as structs, also inside others.

    `landed` is the landed column's name in the query, and one of ours: a name of a user's may be that of a table, a
    lambda's variable or a column that DuckDB made up.
    """
    return landed if column.as_text or not holds_interval(column.type) else rebuilt(column.type, landed, 0)


def holds_interval(type_: PgType) -> bool:
    if type_.kind == "base":
        return type_.name == "interval" and type_.schema == "pg_catalog"
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return any(holds_interval(part) for part in parts)


def rebuilt(type_: PgType, value: str, depth: int) -> str:
    """`value` with every interval struct in it made an INTERVAL; NULL stays NULL."""
    if not holds_interval(type_):
        return value
    if type_.kind == "base":
        made = f"to_months({value}.months) + to_days({value}.days) + to_microseconds({value}.microseconds)"
        return f"CASE WHEN {value} IS NOT NULL THEN {made} END"
    if type_.kind == "composite":
        parts = ", ".join(
            f"{quoted(f.name)} := {rebuilt(f.type, f'{value}.{quoted(f.name)}', depth)}" for f in type_.fields
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({parts}) END"
    assert type_.element is not None
    if type_.kind == "range":
        bounds = ", ".join(f"{b} := {rebuilt(type_.element, f'{value}.{b}', depth)}" for b in ("lower", "upper"))
        marks = ", ".join(f"{mark} := {value}.{mark}" for mark in ("lower_inc", "upper_inc", "empty"))
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({bounds}, {marks}) END"
    return _lists(type_.element, value, type_.dimensions if type_.kind == "array" else 1, depth)


def _lists(element: PgType, value: str, levels: int, depth: int) -> str:
    """A lambda for each level of lists, its variable named by depth."""
    item = f"x{depth}"
    inner = rebuilt(element, item, depth + 1) if levels == 1 else _lists(element, item, levels - 1, depth + 1)
    return f"list_transform({value}, lambda {item}: {inner})"
