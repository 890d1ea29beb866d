"""Spark's names for types, and how its own reader is to read a table's columns."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from walrelay.changes.dialect import Dialect
from walrelay.decode.base import Target
from walrelay.model.schema import Column

SPARK = Target("spark", uuid_as_text=True, time_as_text=True)
DIALECT = Dialect(
    target=SPARK,
    flat={
        pa.bool_(): "BOOLEAN",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.string(): "STRING",
        pa.large_string(): "STRING",
        pa.binary(): "BINARY",
        pa.large_binary(): "BINARY",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
        pa.timestamp("us", "UTC"): "TIMESTAMP",
    },
    list_of=lambda inner: f"ARRAY<{inner}>",
    struct_of=lambda fields: f"STRUCT<{', '.join(f'{name}: {type_}' for name, type_ in fields)}>",
    quote="`",
    own={"interval": "STRUCT<months: INT, days: INT, microseconds: BIGINT>"},
)


def columns_ddl(columns: Iterable[Column]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"{DIALECT.quoted(one.name)} {DIALECT.column_type(one)}" for one in columns)


def row_type(columns: Iterable[Column]) -> str:
    """A row of them as one Spark type."""
    return DIALECT.struct_of([(DIALECT.quoted(one.name), DIALECT.column_type(one)) for one in columns])
