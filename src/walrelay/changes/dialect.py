"""What a destination calls Postgres's types and names: the one place for them, made from a small table each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from walrelay.decode.base import Target
from walrelay.decode.registry import arrow_type, find_rule
from walrelay.model.schema import Column, PgType

RANGE_MARKS = ("lower_inc", "upper_inc", "empty")


@dataclass(frozen=True)
class Dialect:
    """Types are named by the Arrow type that a decoder makes of them, nested ones by their parts."""

    target: Target
    """What its types can hold; decides how values are decoded for it."""
    flat: Mapping[pa.DataType, str]
    list_of: Callable[[str], str]
    struct_of: Callable[[Sequence[tuple[str, str]]], str]
    """Of fields, each with its name as it is to be written and its type."""
    quote: str
    own: Mapping[str, str] = field(default_factory=dict)
    """Types of `pg_catalog` for which it has one of its own, whatever they are decoded to."""

    def quoted(self, name: str) -> str:
        """A name as a statement has it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def column_type(self, column: Column) -> str:
        return self.flat[pa.string()] if column.as_text else self.type_name(column.type)

    def type_name(self, type_: PgType) -> str:
        if type_.kind in ("base", "enum") or find_rule(type_) is None:
            return self._flat(type_)
        if type_.kind == "composite":
            return self.struct_of([(self.quoted(part.name), self.type_name(part.type)) for part in type_.fields])
        assert type_.element is not None
        inner = self.type_name(type_.element)
        if type_.kind == "range":
            marks = [(mark, self.flat[pa.bool_()]) for mark in RANGE_MARKS]
            return self.struct_of([("lower", inner), ("upper", inner), *marks])
        for _ in range(type_.dimensions if type_.kind == "array" else 1):
            inner = self.list_of(inner)
        return inner

    def _flat(self, type_: PgType) -> str:
        if type_.schema == "pg_catalog" and type_.name in self.own:
            return self.own[type_.name]
        made = arrow_type(type_, self.target)
        if pa.types.is_list(made) or pa.types.is_large_list(made):
            return self.list_of(self.flat[made.value_type])
        if pa.types.is_decimal(made):
            return f"DECIMAL({made.precision},{made.scale})"
        return self.flat[made]


class _ArrowNames(Mapping[pa.DataType, str]):
    """Every type under the name that Arrow has for it."""

    def __getitem__(self, type_: pa.DataType) -> str:
        return str(type_)

    def __iter__(self) -> Iterator[pa.DataType]:
        return iter(())

    def __len__(self) -> int:
        return 0


def plain_dialect(target: Target) -> Dialect:
    """For a destination that has no types of its own."""
    return Dialect(
        target,
        _ArrowNames(),
        list_of=lambda inner: f"list<{inner}>",
        struct_of=lambda fields: f"struct<{', '.join(f'{name}: {type_}' for name, type_ in fields)}>",
        quote='"',
    )
