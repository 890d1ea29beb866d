"""Postgres's own names for types, and what a Postgres that is written to can hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from walrelay.changes.dialect import Dialect
from walrelay.decode.base import ARROW, Target
from walrelay.decode.registry import find_rule
from walrelay.model.schema import Column, PgType
from walrelay.model.special import Special

ENDLESS_INTERVALS = 170_000
"""The version of Postgres since which an interval may be infinite."""
POSTGRES = Target("postgres", ARROW.holds, uuid_as_text=True, time_as_text=True, dates_as_text=True)
"""Values arrive in a form that Postgres reads: text, where Arrow's own type has none for all of them."""


def target_of(server_version: int) -> Target:
    """What a server of this version can hold."""
    if server_version >= ENDLESS_INTERVALS:
        return POSTGRES
    return replace(POSTGRES, holds=POSTGRES.holds - {Special.INTERVAL_INFINITY})


def stands_for(type_: PgType) -> PgType:
    """The type of which a column is made. Object identifiers name something in the source alone: here they are the
    number that is stored."""
    if type_.kind == "base" and type_.schema == "pg_catalog" and type_.name.startswith("reg"):
        return PgType(26, "oid")
    if type_.kind == "base" and type_.schema == "pg_catalog" and type_.name == "unknown":
        return PgType(25, "text")
    if find_rule(type_) is None:
        return PgType(17, "bytea")
    return type_


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    """Every type is called as in the source, but for those that only mean something there."""

    def for_target(self, target: Target) -> PostgresDialect:
        return replace(self, target=target)

    def column_type(self, column: Column) -> str:
        return "text" if column.as_text else self.type_name(column.type)

    def type_name(self, type_: PgType) -> str:
        type_ = stands_for(type_)
        if type_.kind == "array":
            assert type_.element is not None
            return f"{self.type_name(type_.element)}[]"
        if type_.name == "numeric" and type_.modifier >= 4:
            precision, scale = divmod(type_.modifier - 4, 1 << 16)
            return f"numeric({precision},{scale})"
        return type_.name if type_.schema == "pg_catalog" else f"{self.quoted(type_.schema)}.{self.quoted(type_.name)}"


DIALECT = PostgresDialect(
    target=POSTGRES,
    flat={pa.string(): "text"},
    list_of=lambda inner: f"{inner}[]",
    struct_of=lambda _: "record",
    quote='"',
)
quoted = DIALECT.quoted


def literal(text: str) -> str:
    """As a statement has it; backslashes stand for themselves in our sessions."""
    return "'" + text.replace("'", "''") + "'"
