"""What the DDL trigger on the source says about a command, in the stream, in the command's own transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from walrelay.model.names import TableId, TableName

PREFIX = "walrelay.ddl"
"""The prefix of the logical messages."""
VERSION = 1
"""The version of the messages' content."""

TableKind = Literal["r", "p"]
Identity = Literal["d", "n", "f", "i"]
Persistence = Literal["p", "u"]
Generated = Literal["", "s", "v"]

_OID_LIMIT = 1 << 32
_ATTNUM_LIMIT = 1 << 15
_INT_LIMIT = 1 << 31
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DdlColumn:
    """A live column: its attribute number is what it is, its name only what it is called."""

    attnum: int
    name: str
    type: int
    modifier: int
    not_null: bool
    generated: Generated
    """'' when it is not, 's' stored, 'v' virtual."""
    expression: str | None
    """Of a generated column."""
    dims: int


@dataclass(frozen=True, slots=True)
class DdlTable:
    """A table as it is after the command; `key` and `identity_key` hold attribute numbers, in the index's order."""

    id: TableId
    name: TableName
    kind: TableKind
    identity: Identity
    filenode: int | None
    """None for a partitioned table, which has no rows of its own."""
    persistence: Persistence
    columns: tuple[DdlColumn, ...]
    natts: int
    """How many attribute numbers were given out; dropped columns keep theirs."""
    key: tuple[int, ...]
    """The primary key, unless it is deferrable."""
    identity_key: tuple[int, ...]
    """The index that identifies rows in the stream; empty when none does, or the whole row."""


@dataclass(frozen=True, slots=True)
class DdlTypeAttribute:
    attnum: int
    name: str
    type: int
    modifier: int


@dataclass(frozen=True, slots=True)
class DdlType:
    """An enum (with `labels`) or a composite (with `attributes`) that the table's columns are made of."""

    id: int
    name: str
    """schema.name, each quoted where SQL wants it."""
    labels: tuple[str, ...] | None
    attributes: tuple[DdlTypeAttribute, ...] | None


@dataclass(frozen=True, slots=True)
class DdlPublication:
    """What a publication sends of the table: `filter` and `columns` are None where it says nothing of them."""

    name: str
    insert: bool
    update: bool
    delete: bool
    truncate: bool
    via_root: bool
    filter: str | None
    columns: tuple[int, ...] | None
    generated: str = "n"
    """As `pg_publication.pubgencols`: n(one), s(tored); always n before Postgres 18."""


@dataclass(frozen=True, slots=True)
class TableAltered:
    """A published table that the command touched, as it is now; `publications` is empty when it has left the last."""

    tag: str
    table: DdlTable
    leaves: tuple[tuple[int, int | None], ...] | None
    """Of a partitioned table: id and filenode of every relation that holds its rows (no filenode: a foreign table)."""
    types: tuple[DdlType, ...]
    publications: tuple[DdlPublication, ...]


@dataclass(frozen=True, slots=True)
class TableDropped:
    """A table that was published, and is no more."""

    tag: str
    id: TableId
    name: TableName


@dataclass(frozen=True, slots=True)
class DdlFailed:
    """A command of which the trigger could not say what it touched; `sqlstate` says why not."""

    tag: str
    sqlstate: str


DdlMessage = TableAltered | TableDropped | DdlFailed


def parse_ddl(content: bytes) -> DdlMessage:
    """The message that the trigger wrote. Raises ValueError for anything else; keys it does not know are ignored."""
    try:
        body = json.loads(bytes(content).decode("utf-8"))
    except RecursionError:
        raise ValueError("not a DDL message: nested too deeply") from None
    fields = _object(body)
    if _get(fields, "v", _integer(0, _INT_LIMIT)) != VERSION:
        raise ValueError("not a DDL message of a version that is known")
    tag = _get(fields, "tag", _text)
    if "table" in fields:
        return TableAltered(
            tag,
            _get(fields, "table", _table),
            _get(fields, "leaves", _optional(_list(_leaf))),
            _get(fields, "types", _list(_type)),
            _get(fields, "publications", _list(_publication)),
        )
    if "dropped" in fields:
        dropped = _get(fields, "dropped", _object)
        return TableDropped(tag, _get(dropped, "id", _oid), _name(dropped))
    return DdlFailed(tag, _get(fields, "failed", _text))


def _get(fields: dict[str, Any], key: str, read: Callable[[Any], T]) -> T:
    if key not in fields:
        raise ValueError(f"not a DDL message: no {key}")
    try:
        return read(fields[key])
    except ValueError as error:
        raise ValueError(f"{error} in {key}") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not a DDL message: no object")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a DDL message: no text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not a DDL message: neither true nor false")
    return value


def _integer(least: int, limit: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value < limit:
            raise ValueError("not a DDL message: no number that it may be")
        return value

    return read


_oid = _integer(1, _OID_LIMIT)
_attnum = _integer(1, _ATTNUM_LIMIT)
_count = _integer(0, _ATTNUM_LIMIT)
_modifier = _integer(-_INT_LIMIT, _INT_LIMIT)


def _word(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError("not a DDL message: no letter that it may be")
        return value

    return read


def _optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else read(value)


def _list(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    def read_all(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError("not a DDL message: no list")
        return tuple(read(item) for item in value)

    return read_all


def _tuple(value: Any, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise ValueError(f"not a DDL message: no list of {length}")
    return value


def _name(fields: dict[str, Any]) -> TableName:
    return TableName(_get(fields, "schema", _text), _get(fields, "name", _text))


def _table(value: Any) -> DdlTable:
    fields = _object(value)
    return DdlTable(
        id=_get(fields, "id", _oid),
        name=_name(fields),
        kind=cast(TableKind, _get(fields, "kind", _word("r", "p"))),
        identity=cast(Identity, _get(fields, "identity", _word("d", "n", "f", "i"))),
        filenode=_get(fields, "filenode", _optional(_oid)),
        persistence=cast(Persistence, _get(fields, "persistence", _word("p", "u"))),
        columns=_get(fields, "columns", _list(_column)),
        natts=_get(fields, "natts", _count),
        key=_get(fields, "key", _list(_attnum)),
        identity_key=_get(fields, "identity_key", _list(_attnum)),
    )


def _column(value: Any) -> DdlColumn:
    fields = _object(value)
    return DdlColumn(
        attnum=_get(fields, "attnum", _attnum),
        name=_get(fields, "name", _text),
        type=_get(fields, "type", _oid),
        modifier=_get(fields, "modifier", _modifier),
        not_null=_get(fields, "not_null", _flag),
        generated=cast(Generated, _get(fields, "generated", _word("", "s", "v"))),
        expression=_get(fields, "expression", _optional(_text)),
        dims=_get(fields, "dims", _count),
    )


def _leaf(value: Any) -> tuple[int, int | None]:
    id, filenode = _tuple(value, 2)
    return _oid(id), _optional(_oid)(filenode)


def _type(value: Any) -> DdlType:
    fields = _object(value)
    return DdlType(
        id=_get(fields, "id", _oid),
        name=_get(fields, "name", _text),
        labels=_get(fields, "labels", _optional(_list(_text))),
        attributes=_get(fields, "attributes", _optional(_list(_attribute))),
    )


def _attribute(value: Any) -> DdlTypeAttribute:
    attnum, name, type, modifier = _tuple(value, 4)
    return DdlTypeAttribute(_attnum(attnum), _text(name), _oid(type), _modifier(modifier))


def _publication(value: Any) -> DdlPublication:
    fields = _object(value)
    return DdlPublication(
        name=_get(fields, "name", _text),
        insert=_get(fields, "insert", _flag),
        update=_get(fields, "update", _flag),
        delete=_get(fields, "delete", _flag),
        truncate=_get(fields, "truncate", _flag),
        via_root=_get(fields, "via_root", _flag),
        filter=_get(fields, "filter", _optional(_text)),
        columns=_get(fields, "columns", _optional(_list(_attnum))),
        generated=_get({"generated": "n", **fields}, "generated", _text),
    )
