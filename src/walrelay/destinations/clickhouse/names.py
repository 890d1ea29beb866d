"""Under which names tables stand in a ClickHouse database, which has no schemas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from uuid import uuid4

from walrelay.errors import NameClashError
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema

OWN = "_walrelay_"
"""What is ours begins so."""
PUBLIC = "public"
IS_NULL = "_is_null"
"""Behind the name of a column that holds arrays: whether it is NULL, which no array of ClickHouse's can be."""
_LONGEST = 200
"""Of a name as ClickHouse writes it on disk; a file's name may have 255 bytes, and it adds some of its own."""
_PLAIN = re.compile(rb"[A-Za-z0-9_]")


def view_name(name: TableName) -> str:
    """The name that readers use: that of the table, and its schema's before it where that is not `public`. No two
    become one: a part that has a dot is quoted, as Postgres would, and then the schema is always named."""
    if name.schema == PUBLIC and _is_simple(name.name):
        return name.name
    return f"{_part(name.schema)}.{_part(name.name)}"


def _is_simple(part: str) -> bool:
    return "." not in part and '"' not in part


def _part(part: str) -> str:
    return part if _is_simple(part) else '"' + part.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names for tables that readers do not see, a new one each time; `tag` is one pipeline's, so that it never takes
    another's for something that was left behind."""

    tag: str

    @classmethod
    def of(cls, pipeline: str, source: str) -> OwnNames:
        return cls(sha256(f"{pipeline}\0{source}".encode()).hexdigest()[:12])

    @property
    def prefix(self) -> str:
        return f"{OWN}{self.tag}_"

    def storage(self, table: TableId) -> str:
        """For the table behind a view."""
        return f"{self.prefix}{table}_{uuid4().hex[:12]}"

    def is_history(self, name: str) -> bool:
        return name.startswith(f"{self.prefix}history_")

    def history(self, table: TableId) -> str:
        """For the table that keeps all changes of one; always the same."""
        return f"{self.prefix}history_{table}"

    def stage(self) -> str:
        """For a table that is there while a batch is taken in."""
        return f"{self.prefix}stage_{uuid4().hex[:12]}"


def refuse_names(schema: TableSchema, *, marks: bool) -> None:
    """Raise for names that the table cannot have here. `marks`: columns are shown that say which arrays are NULL."""
    shown = view_name(schema.name)
    if shown.startswith(OWN):
        raise _clash(schema, f"names that begin with {OWN} are walrelay's own: {schema.name}")
    if sum(1 if _PLAIN.match(bytes([byte])) else 3 for byte in shown.encode()) > _LONGEST:
        raise _clash(schema, f"the name is too long for ClickHouse: {schema.name}")
    from walrelay.destinations.clickhouse.dialect import is_marked

    names = {column.name for column in schema.columns}
    for column in schema.columns if marks else ():
        if is_marked(column) and column.name + IS_NULL in names:
            raise _clash(
                schema,
                f"{schema.name} has a column {column.name}{IS_NULL}, by which ClickHouse is to say which arrays in"
                f" {column.name} are NULL",
                "Rename it; or leave these columns out, with null_marks=no in the destination's URL.",
            )


def _clash(
    schema: TableSchema, message: str, hint: str = "Rename it, or leave it out of the publication."
) -> NameClashError:
    return NameClashError(message, hint=hint, context={"table": str(schema.name), "table_id": schema.id})
