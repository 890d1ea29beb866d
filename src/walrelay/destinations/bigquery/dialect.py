"""BigQuery's names for types, and which names it takes for tables and columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from walrelay.changes.dialect import Dialect
from walrelay.decode.base import Target
from walrelay.decode.registry import arrow_type
from walrelay.model.schema import Column, PgType

BIGQUERY = Target("bigquery", uuid_as_text=True, time_as_text=True)
_DOCUMENTS = ("json", "jsonb")
_PLACE_KINDS = ("L", "M", "N", "Pc", "Pd", "Zs")
"""Unicode categories, or their first letters, of what a table's name is made of."""
_COLUMN_MARKS = frozenset("&=+:'<>#|")
"""What a column's name may have besides; and %, by which we write the rest."""
LONGEST_PLACE, LONGEST_COLUMN = 1024, 300


def _list_of(inner: str) -> str:
    """An array of arrays is not known: each of those stands in a struct."""
    return f"ARRAY<STRUCT<items {inner}>>" if inner.startswith("ARRAY<") else f"ARRAY<{inner}>"


def _struct_of(fields: Sequence[tuple[str, str]]) -> str:
    return f"STRUCT<{', '.join(f'{name} {type_}' for name, type_ in fields)}>"


@dataclass(frozen=True)
class BigQueryDialect(Dialect):
    """`documents`: whether json and jsonb become JSON, which BigQuery writes anew, and not their text."""

    documents: bool = False

    def quoted(self, name: str) -> str:
        return f"`{column_name(name)}`"

    def column_type(self, column: Column) -> str:
        return "JSON" if self.is_document(column) else super().column_type(column)

    def is_document(self, column: Column) -> bool:
        type_ = column.type
        is_json = type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in _DOCUMENTS
        return self.documents and is_json and not column.as_text

    def _flat(self, type_: PgType) -> str:
        made = arrow_type(type_, self.target)
        if pa.types.is_decimal(made):
            return decimal_type(made.precision, made.scale)
        return super()._flat(type_)


def decimal_type(precision: int, scale: int) -> str:
    """The shorter of its two decimals where that is enough."""
    kind = "NUMERIC" if scale <= 9 and precision - scale <= 29 else "BIGNUMERIC"
    return f"{kind}({precision}, {scale})"


DIALECT = BigQueryDialect(
    target=BIGQUERY,
    flat={
        pa.bool_(): "BOOL",
        pa.int16(): "INT64",
        pa.int32(): "INT64",
        pa.int64(): "INT64",
        pa.float32(): "FLOAT64",
        pa.float64(): "FLOAT64",
        pa.string(): "STRING",
        pa.large_string(): "STRING",
        pa.binary(): "BYTES",
        pa.large_binary(): "BYTES",
        pa.date32(): "DATE",
        pa.timestamp("us"): "DATETIME",
        pa.timestamp("us", "UTC"): "TIMESTAMP",
    },
    list_of=_list_of,
    struct_of=_struct_of,
    quote="`",
    own={"interval": "STRUCT<months INT64, days INT64, microseconds INT64>"},
)


def is_place(place: str) -> bool:
    """Whether a table can be called so."""
    kinds = (unicodedata.category(one) for one in place)
    return len(place.encode()) <= LONGEST_PLACE and all(k in _PLACE_KINDS or k[0] in _PLACE_KINDS for k in kinds)


def column_name(name: str) -> str:
    """The name, with what BigQuery does not take in one written as in a URL; no two become one."""
    return "".join(one if _is_plain(one) else _escaped(one) for one in name)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _is_plain(character: str) -> bool:
    kind = unicodedata.category(character)
    return character in _COLUMN_MARKS or kind in _PLACE_KINDS or kind[0] in _PLACE_KINDS
