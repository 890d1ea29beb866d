"""Values of Snowflake's as DuckDB has them: nested ones come as JSON, with most of what is in them as text."""

from __future__ import annotations

import pyarrow as pa

from walrelay.changes.dialect import RANGE_MARKS
from walrelay.decode.registry import arrow_type
from walrelay.destinations.duckdb.dialect import quoted
from walrelay.destinations.snowflake.dialect import SNOWFLAKE
from walrelay.destinations.warehouse.restoring import Restoring, is_interval, is_list_type, is_vector, plain
from walrelay.model.schema import PgType


class SnowflakeRestoring(Restoring):
    def begun(self, type_: PgType, value: str) -> str:
        if is_list_type(type_) or is_interval(type_) or type_.kind in ("composite", "range"):
            return f"CAST(CAST({value} AS JSON) AS {_read_as(type_)})"
        return value

    def field(self, name: str) -> str:
        return name

    def item(self, element: str, is_list: bool) -> str:
        return element

    def leaf(self, type_: PgType, value: str) -> str:
        made = arrow_type(type_, SNOWFLAKE)
        if pa.types.is_binary(made) or pa.types.is_large_binary(made):
            return f"CASE WHEN typeof({value}) = 'BLOB' THEN {value}::BLOB ELSE unhex({value}::VARCHAR) END"
        return plain(type_, value)


def _read_as(type_: PgType) -> str:
    """The type in which DuckDB reads the JSON."""
    if type_.kind == "composite" and type_.fields:
        return _struct([(quoted(one.name), _read_as(one.type)) for one in type_.fields])
    if type_.kind == "range":
        assert type_.element is not None
        bound = _read_as(type_.element)
        return _struct([("lower", bound), ("upper", bound), *((mark, "BOOLEAN") for mark in RANGE_MARKS)])
    if type_.element is not None:
        return _read_as(type_.element) + "[]" * (1 if type_.kind == "multirange" else type_.dimensions)
    if is_vector(type_):
        return "VARCHAR[]"
    if is_interval(type_):
        return _struct([("months", "INTEGER"), ("days", "INTEGER"), ("microseconds", "BIGINT")])
    return "VARCHAR"


def _struct(fields: list[tuple[str, str]]) -> str:
    return f"STRUCT({', '.join(f'{name} {kind}' for name, kind in fields)})"
