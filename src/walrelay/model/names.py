"""Names of tables and how Postgres writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")

TableId = int
"""A table's oid in `pg_class`: the name may change, this does not."""


def quote_name(name: str) -> str:
    """The identifier as SQL wants it: quoted only when it has to be (keywords are the caller's matter)."""
    return name if _PLAIN.match(name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A schema-qualified table name; prints as Postgres would."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`orders`, `public.orders`, `"Odd.Schema"."Tab le"`; unquoted parts are folded to lower case as SQL does."""
        parts: list[str] = []
        rest = text.strip()
        while rest:
            match = re.match(r'"((?:[^"]|"")+)"|([^".]+)', rest)
            if match is None:
                raise ValueError(f"not a table name: {text!r}")
            parts.append(match[1].replace('""', '"') if match[1] is not None else match[2].strip().lower())
            rest = rest[match.end() :]
            if rest and not rest.startswith("."):
                raise ValueError(f"not a table name: {text!r}")
            if rest == ".":
                raise ValueError(f"not a table name: {text!r}")
            rest = rest[1:]
        if len(parts) == 1:
            return cls("public", parts[0])
        if len(parts) != 2:
            raise ValueError(f"not a table name: {text!r}")
        return cls(parts[0], parts[1])
