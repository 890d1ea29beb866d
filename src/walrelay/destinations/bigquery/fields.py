"""A type as SQL writes it, as the fields of a table's schema: what load jobs and the catalog are told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from walrelay.destinations.bigquery.client import bigquery_module

if TYPE_CHECKING:
    from google.cloud.bigquery import SchemaField

_TOKEN = re.compile(r"`[^`]*`|\w+(?:\(\d+, \d+\))?|[<>,]")
_DECIMAL = re.compile(r"(\w+)\((\d+), (\d+)\)")


def field(name: str, type_: str) -> SchemaField:
    """Of a type that the dialect has made."""
    tokens = _TOKEN.findall(type_)
    made = _field(name, tokens)
    assert not tokens, f"not a type: {type_}"
    return made


def _field(name: str, tokens: list[str]) -> SchemaField:
    """Takes what it reads from the front of the tokens."""
    kind, make = tokens.pop(0), bigquery_module().SchemaField
    mode = "NULLABLE"
    if kind == "ARRAY":
        _take(tokens, "<")
        inner = _field(name, tokens)
        _take(tokens, ">")
        repeated: SchemaField = make(
            name,
            inner.field_type,
            "REPEATED",
            fields=inner.fields,
            precision=inner.precision,
            scale=inner.scale,
        )
        return repeated
    if kind == "STRUCT":
        record: SchemaField = make(name, "RECORD", mode, fields=_fields(tokens))
        return record
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        plain: SchemaField = make(name, kind, mode)
        return plain
    number: SchemaField = make(name, decimal[1], mode, precision=int(decimal[2]), scale=int(decimal[3]))
    return number


def _fields(tokens: list[str]) -> list[SchemaField]:
    _take(tokens, "<")
    found = []
    while True:
        found.append(_field(tokens.pop(0).strip("`"), tokens))
        if tokens.pop(0) == ">":
            return found


def _take(tokens: list[str], wanted: str) -> None:
    found = tokens.pop(0)
    assert found == wanted, f"{found} stands where {wanted} should"
