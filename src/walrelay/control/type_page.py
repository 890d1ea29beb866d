"""The tables of types in the pages about destinations, made from each one's dialect: `python -m
walrelay.control.type_page` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from walrelay.changes.dialect import Dialect
from walrelay.changes.spark_dialect import DIALECT as SPARK
from walrelay.decode.registry import BUILTIN, EXTENSION
from walrelay.destinations.clickhouse.dialect import DIALECT as CLICKHOUSE
from walrelay.destinations.duckdb.dialect import DIALECT as DUCKDB
from walrelay.destinations.iceberg.shape import ICEBERG
from walrelay.model.schema import PgType, TypeField

PAGES = {"clickhouse": CLICKHOUSE, "delta": SPARK, "duckdb": DUCKDB, "iceberg": ICEBERG}
DIRECTORY = Path("docs/destinations")
_BEGIN, _END = "<!-- types: made by walrelay.control.type_page -->", "<!-- end of types -->"
_INT4, _TEXT = PgType(23, "int4"), PgType(25, "text")
_PARAMETERS = {"numeric": ((10 << 16) | 2) + 4}
"""A modifier, as Postgres stores it: numeric(10, 2)."""


def _made() -> Iterator[tuple[str, PgType]]:
    """Names for people, and the types."""
    for name in BUILTIN:
        if name in _PARAMETERS:
            yield f"{name}(10, 2), up to 38 digits", PgType(1, name, modifier=_PARAMETERS[name])
            yield f"any other {name}", PgType(1, name)
        elif not name.startswith("reg") and name not in {"unknown", "refcursor"}:
            yield name, PgType(1, name, scale=2) if name == "money" else PgType(1, name)
    yield "reg… (regclass …)", PgType(1, "regclass")
    yield "enum", PgType(1, "mood", schema="public", kind="enum")
    for extension, name in EXTENSION:
        yield f"{name} ({extension})", PgType(1, name, schema="public", extension=extension)
    yield "int4[]", PgType(1, "_int4", kind="array", element=_INT4)
    yield "int4range", PgType(1, "int4range", kind="range", element=_INT4)
    span = PgType(1, "int4range", kind="range", element=_INT4)
    yield "int4multirange", PgType(1, "int4multirange", kind="multirange", element=span)
    parts = (TypeField("a", _INT4), TypeField("b", _TEXT))
    yield "composite (a int4, b text)", PgType(1, "pair", schema="public", kind="composite", fields=parts)
    yield "any other", PgType(1, "other", schema="public")


def type_table(dialect: Dialect) -> str:
    """Postgres' types by what the destination calls them."""
    found: dict[str, list[str]] = {}
    for name, type_ in _made():
        found.setdefault(dialect.type_name(type_).replace(dialect.quote, ""), []).append(name)
    lines = ["| here | in Postgres |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{ours}` | {', '.join(theirs)} |" for ours, theirs in found.items())])


def with_table(page: str, dialect: Dialect) -> str:
    """The page, its table made anew."""
    block = f"{_BEGIN}\n{type_table(dialect)}\n{_END}"
    return re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    for destination, dialect in PAGES.items():
        file = DIRECTORY / f"{destination}.md"
        file.write_text(with_table(file.read_text(encoding="utf-8"), dialect), encoding="utf-8")
