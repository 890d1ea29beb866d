"""ClickHouse's names for types. A column's type is held bare; what may be NULL around it depends on where it stands."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from walrelay.changes.dialect import RANGE_MARKS, Dialect
from walrelay.decode.base import Target
from walrelay.decode.numeric import declared_decimal
from walrelay.decode.registry import find_rule
from walrelay.model.schema import Column, PgType

CLICKHOUSE = Target("clickhouse", uuid_as_text=True, time_as_text=True)
"""Lands uuid and time as text; ClickHouse makes a UUID of the former when it takes it in."""
MOMENT = "DateTime64(6, 'UTC')"
MAX_DIGITS = 76
"""Of ClickHouse's widest decimal."""
WRAPPED = "value"
"""The name of the one part of a tuple around an array that stands inside of a composite, where it may be NULL."""
_NAMED = "LowCardinality(String)"


@dataclass(frozen=True)
class ClickHouseDialect(Dialect):
    """`type_name` and `column_type` are bare: `declared` says what a column is made as."""

    def column_type(self, column: Column) -> str:
        return "String" if column.as_text else self.type_name(column.type)

    def type_name(self, type_: PgType) -> str:
        if type_.kind == "enum":
            return _NAMED
        if type_.kind == "base" or find_rule(type_) is None:
            wide = wide_decimal(type_)
            return self._flat(type_) if wide is None else f"Decimal({wide[0]}, {wide[1]})"
        if type_.kind == "composite":
            return self.struct_of([(self.quoted(part.name), self._inside(part.type)) for part in type_.fields])
        assert type_.element is not None
        if type_.kind == "range":
            bound = self._inside(type_.element)
            return self.struct_of([("lower", bound), ("upper", bound), *((mark, "Bool") for mark in RANGE_MARKS)])
        inner = self._inside(type_.element)
        for _ in range(levels(type_)):
            inner = self.list_of(inner)
        return inner

    def quoted(self, name: str) -> str:
        return quoted(name)

    def _flat(self, type_: PgType) -> str:
        made = super()._flat(type_)
        # As ClickHouse itself prints it.
        return made.replace("DECIMAL(", "Decimal(").replace(",", ", ") if made.startswith("DECIMAL(") else made

    def _inside(self, type_: PgType) -> str:
        """The type of an element, an attribute or a bound, any of which may be NULL."""
        made = self.type_name(type_)
        return nullable(f"Tuple({WRAPPED} {made})") if is_list(type_) else nullable(made)

    def declared(self, column: Column, *, of_key: bool) -> str:
        """The type of a table's column. No key is NULL, and no array can be: a mark beside it says that it is."""
        return declared(self.column_type(column), of_key=of_key)


def declared(bare: str, *, of_key: bool) -> str:
    return bare if of_key or bare.startswith("Array(") else nullable(bare)


def nullable(bare: str) -> str:
    return "LowCardinality(Nullable(String))" if bare == _NAMED else f"Nullable({bare})"


def is_list(type_: PgType) -> bool:
    """Whether ClickHouse holds the type as an array."""
    if find_rule(type_) is None:
        return False
    if type_.kind in {"array", "vector_array", "multirange"}:
        return True
    return type_.kind == "base" and type_.extension == "vector"


def levels(type_: PgType) -> int:
    return type_.dimensions if type_.kind in {"array", "vector_array"} else 1


def is_marked(column: Column) -> bool:
    """Whether another column says that this one is NULL."""
    return not column.as_text and is_list(column.type)


def wide_decimal(type_: PgType) -> tuple[int, int] | None:
    """Precision and scale of a numeric that is too wide for Arrow's decimals, which lands as text, and not for
    ClickHouse's."""
    if type_.name != "numeric" or type_.schema != "pg_catalog" or declared_decimal(type_.modifier) is not None:
        return None
    if type_.modifier < 4:
        return None
    packed = type_.modifier - 4
    precision, scale = (packed >> 16) & 0xFFFF, packed & 0x7FF
    if scale >= 1024:
        precision, scale = precision - (scale - 2048), 0  # numeric(40,-2) holds two digits more
    precision = max(precision, scale)
    return (precision, scale) if precision <= MAX_DIGITS else None


DIALECT = ClickHouseDialect(
    target=CLICKHOUSE,
    flat={
        pa.bool_(): "Bool",
        pa.int16(): "Int16",
        pa.int32(): "Int32",
        pa.int64(): "Int64",
        pa.float32(): "Float32",
        pa.float64(): "Float64",
        pa.string(): "String",
        pa.large_string(): "String",
        pa.binary(): "String",
        pa.large_binary(): "String",
        pa.date32(): "Date32",
        pa.timestamp("us"): MOMENT,
        pa.timestamp("us", "UTC"): MOMENT,
    },
    list_of=lambda inner: f"Array({inner})",
    struct_of=lambda fields: f"Tuple({', '.join(f'{name} {type_}' for name, type_ in fields)})",
    quote="`",
    own={"interval": "Tuple(months Int32, days Int32, microseconds Int64)", "uuid": "UUID"},
)


def quoted(name: str) -> str:
    """A name as a statement has it: ClickHouse reads backslashes within one, too."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
