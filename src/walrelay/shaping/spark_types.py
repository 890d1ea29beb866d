"""Spark's types as Postgres's: of columns that a function has made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walrelay.model.schema import PgType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_FLAT = {
    "boolean": (16, "bool", 1000),
    "tinyint": (21, "int2", 1005),
    "smallint": (21, "int2", 1005),
    "int": (23, "int4", 1007),
    "bigint": (20, "int8", 1016),
    "float": (700, "float4", 1021),
    "double": (701, "float8", 1022),
    "string": (25, "text", 1009),
    "binary": (17, "bytea", 1001),
    "date": (1082, "date", 1182),
    "timestamp_ntz": (1114, "timestamp", 1115),
    "timestamp": (1184, "timestamptz", 1185),
}
"""Each with its oid, its name, and its array's oid."""
_NUMERIC, _NUMERICS = 1700, 1231


def pg_type(type_: DataType) -> PgType:
    """Raises ValueError for a type that no column of a table has."""
    from pyspark.sql.types import ArrayType, DecimalType

    if isinstance(type_, DecimalType):
        return PgType(_NUMERIC, "numeric", modifier=((type_.precision << 16) | type_.scale) + 4)
    if isinstance(type_, ArrayType) and not isinstance(type_.elementType, ArrayType):
        element = pg_type(type_.elementType)
        oid = next((array for own, _, array in _FLAT.values() if own == element.oid), _NUMERICS)
        return PgType(oid, f"_{element.name}", kind="array", element=element)
    found = _FLAT.get(type_.simpleString())
    if found is None:
        raise ValueError(type_.simpleString())
    return PgType(found[0], found[1])
