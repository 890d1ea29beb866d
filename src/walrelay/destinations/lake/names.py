"""Under which names tables stand in a lake: a directory for each schema, and one for each table in it."""

from __future__ import annotations

from collections.abc import Iterable

from walrelay.errors import NameClashError
from walrelay.model.schema import PgType, TableSchema

_PLAIN = frozenset("_-. $")


def directory_name(name: str) -> str:
    """The name as that of a directory: what a file system, a URL or Spark would take for something else is written as
    `~` and its bytes. No two names become one."""
    first, rest = name[0], name[1:]
    begin = first if first.isalnum() else _escaped(first)  # readers skip what begins with a dot or an underscore
    return begin + "".join(one if one.isalnum() or one in _PLAIN else _escaped(one) for one in rest)


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())


def refuse_twin_columns(schema: TableSchema) -> None:
    """Spark ignores the case of names, and would mix two columns up that only it tells apart."""
    _refuse(f"the table {schema.name} has columns", (column.name for column in schema.columns))
    for column in schema.columns:
        if not column.as_text:
            _refuse_attributes(column.type)


def _refuse_attributes(type_: PgType) -> None:
    _refuse(f"the type {type_} has attributes", (one.name for one in type_.fields))
    for part in [*(one.type for one in type_.fields), *([type_.element] if type_.element else [])]:
        _refuse_attributes(part)


def _refuse(owner: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise NameClashError(
                f"{owner} that Spark cannot tell apart: {twin}, {name}",
                hint="Rename one of them, or leave it out of the publication's column list.",
            )
