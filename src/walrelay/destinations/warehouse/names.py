"""Under which names tables and columns stand in a warehouse, where all tables are beside each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from walrelay.errors import NameClashError
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import PgType, TableSchema

OWN = "_walrelay_"
"""How the names of our own tables begin."""
STATE = f"{OWN}state_"
MAIN_SCHEMA = "public"


def table_place(name: TableName) -> str:
    """Tables of `public` keep their name; those of another schema have it before theirs."""
    return name.name if name.schema == MAIN_SCHEMA else f"{name.schema}_{name.name}"


def refuse_own(place: str, name: TableName) -> None:
    if place.lower().startswith(OWN):
        raise NameClashError(
            f"{name} would be called {place}, and names that begin with {OWN} are walrelay's own",
            hint="Rename the table, or leave it out of the publication.",
        )


def state_place(source: str, table: TableId) -> str:
    """Where stands what we know of a table: one row, in a table of its own, which nobody else waits for."""
    return f"{STATE}{_short(source)}_{table}"


def stage_prefix(pipeline: str) -> str:
    """Of the tables that hold what is not taken yet."""
    return f"{OWN}stage_{_short(pipeline)}_"


def files_place(pipeline: str) -> str:
    """Where files are sent to, at a service that has a place for them; needs no quotes."""
    return f"{OWN}files_{_short(pipeline)}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def refuse_twins(schema: TableSchema, here: Callable[[str], str], service: str) -> None:
    """Where two columns, or attributes of a type, would have one name; `here` says which name is whose."""
    _refuse(f"the table {schema.name} has columns", [one.name for one in schema.columns], here, service)
    for column in schema.columns:
        if not column.as_text:
            _refuse_attributes(column.type, here, service)


def _refuse_attributes(type_: PgType, here: Callable[[str], str], service: str) -> None:
    _refuse(f"the type {type_} has attributes", [one.name for one in type_.fields], here, service)
    for part in [*(one.type for one in type_.fields), *([type_.element] if type_.element else [])]:
        _refuse_attributes(part, here, service)


def _refuse(owner: str, names: Iterable[str], here: Callable[[str], str], service: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(here(name), name)
        if twin != name:
            raise NameClashError(
                f"{owner} that {service} cannot tell apart: {twin}, {name}",
                hint="Rename one of them, or leave it out of the publication's column list.",
            )
