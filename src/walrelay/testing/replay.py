"""Rebuilds tables from their changes in plain Python, and complains about every change that does not fit."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.visibility import VisibleTransactions
from walrelay.testing.sample import Row, Sample, plain_row

Values = dict[str, str | None]
"""A row: column → text; a column that is not in it was added after the row was last written, its value is unknown."""

_SHOWN = 160


class Change(Protocol):
    """A change of the log, with the Python values that `plain_rows` gives."""

    @property
    def commit_lsn(self) -> Lsn: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def xid(self) -> int: ...
    @property
    def table(self) -> TableName: ...
    @property
    def op(self) -> str:
        """insert, update, delete or truncate."""

    @property
    def row(self) -> Mapping[str, Any] | None: ...
    @property
    def old(self) -> Mapping[str, Any] | None: ...
    @property
    def old_kind(self) -> str | None:
        """`key`: only the identity columns of `old` are meant; `row`: all are."""

    @property
    def unchanged(self) -> Sequence[str]: ...


def replay(
    changes: Iterable[Change], keys: Mapping[str, Sequence[str]], upto: Sample, since: Sample | None = None
) -> Replica:
    """The replica of exactly those transactions that `upto` sees and `since` does not; begins with what `since` holds.

    `upto` must be the later of the two. The result should have no `differences` from it.
    """
    seen = VisibleTransactions.parse(upto.snapshot)
    before = VisibleTransactions.parse(since.snapshot) if since else None
    replica = Replica(keys, since)
    for change in changes:
        if seen.sees(change.xid) and not (before is not None and before.sees(change.xid)):
            replica.apply(change)
    return replica


class Replica:
    """Tables as dictionaries by key or, without one, as multisets. A change that cannot be right raises AssertionError.

    `keys` gives the identity columns by table name. Changes of a table must come in their order. The log gives columns
    by name and no defaults: when a table's columns change, held rows forget those that are gone, and the values of new
    ones are unknown, and equal to anything, until the row is written again.
    """

    def __init__(self, keys: Mapping[str, Sequence[str]], start: Sample | None = None) -> None:
        self._keys = {table: tuple(columns) for table, columns in keys.items()}
        self._tables: dict[str, _Keyed | _Loose] = {}
        self._columns: dict[str, frozenset[str]] = {}
        self._last: dict[str, tuple[int, int]] = {}
        for name, contents in start.tables.items() if start else ():
            table = self._table(name)
            self._columns[name] = frozenset(contents.columns)
            for row in contents.rows:
                table.add(dict(zip(contents.columns, row, strict=True)))

    def apply(self, change: Change) -> None:
        """Apply one change; the error names table, LSN and ordinal."""
        name = str(change.table)
        try:
            position = (int(change.commit_lsn), change.ordinal)
            last = self._last.get(name, (-1, -1))
            _require(position > last, f"comes after {Lsn(last[0])}, {last[1]}: twice, or out of order")
            self._last[name] = position
            self._follow_columns(name, change)
            self._change(self._table(name), change)
        except _MisfitError as misfit:
            where = f"{name} at {Lsn(change.commit_lsn)}, ordinal {change.ordinal}, xid {change.xid}"
            raise AssertionError(f"{change.op} of {where}: {misfit}") from None

    def state(self) -> dict[str, list[Row]]:
        """The rows of all tables that have some; equal to `Sample.state()` if no columns changed meanwhile."""
        rows = {name: sorted(plain_row(row) for row in table) for name, table in self._tables.items()}
        return {name: held for name, held in rows.items() if held}

    def differences(self, sample: Sample) -> list[str]:
        """What is not as in the sample, a line each; none if all is. Unknown values are not compared."""
        found: list[str] = []
        for name, contents in sample.tables.items():
            rows = [dict(zip(contents.columns, row, strict=True)) for row in contents.rows]
            found += (f"{name}: {line}" for line in self._table(name).differences(rows))
        return found + [f"{name}: not in the sample" for name in sorted(self.state().keys() - sample.tables.keys())]

    def _table(self, name: str) -> _Keyed | _Loose:
        if name not in self._tables:
            self._tables[name] = _Keyed(self._keys[name]) if name in self._keys else _Loose()
        return self._tables[name]

    def _follow_columns(self, name: str, change: Change) -> None:
        whole = change.row if change.row is not None else change.old if change.old_kind == "row" else None
        if whole is None:
            return
        columns = frozenset(whole) | frozenset(change.unchanged)
        if self._columns.setdefault(name, columns) != columns:
            self._columns[name] = columns
            self._table(name).keep_columns(columns)

    @staticmethod
    def _change(table: _Keyed | _Loose, change: Change) -> None:
        row, old = _texts(change.row), _texts(change.old)
        match change.op:
            case "insert":
                _require(row is not None and old is None and not change.unchanged, "wants a whole row, and no other")
                table.add(row or {})
            case "update":
                _require(row is not None, "wants a row")
                row = row or {}
                held = table.remove(row if old is None else old, whole=change.old_kind == "row")
                for column in change.unchanged:
                    _require(row.pop(column, None) is None, f"has a value for {column}, which it calls unchanged")
                    if column in held:
                        row[column] = held[column]
                table.add(row)
            case "delete":
                _require(row is None and old is not None, "wants an old row, and no other")
                table.remove(old or {}, whole=change.old_kind == "row")
            case "truncate":
                _require(row is None and old is None, "wants no row")
                table.clear()
            case _:
                raise _MisfitError("is not a change we know")


class _MisfitError(Exception):
    """Why a change does not fit."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _MisfitError(otherwise)


class _Keyed:
    """A table with a replica identity of some columns."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._rows: dict[tuple[str | None, ...], Values] = {}

    def __iter__(self) -> Any:
        return iter(self._rows.values())

    def add(self, row: Values) -> None:
        key = self._key_of(row)
        _require(key not in self._rows, f"a row with key {key} is there already")
        self._rows[key] = row

    def remove(self, old: Values, *, whole: bool) -> Values:
        key = self._key_of(old)
        held = self._rows.pop(key, None)
        if held is None:
            raise _MisfitError(f"no row with key {key} is there")
        _require(not whole or _agree(held, old), f"the row with key {key} is not the old one")
        return held

    def clear(self) -> None:
        self._rows.clear()

    def keep_columns(self, columns: frozenset[str]) -> None:
        self._rows = {key: {c: v for c, v in row.items() if c in columns} for key, row in self._rows.items()}

    def differences(self, rows: list[Values]) -> list[str]:
        there = {self._key_of(row): row for row in rows}
        missing = [f"row {key} is missing" for key in there.keys() - self._rows.keys()]
        surplus = [f"row {key} is too many" for key in self._rows.keys() - there.keys()]
        return (
            sorted(missing)
            + sorted(surplus)
            + [
                f"row {key} has {column} {_shorten(held[column])}, should be {_shorten(there[key][column])}"
                for key, held in self._rows.items()
                if key in there
                for column in sorted(held.keys() & there[key].keys())
                if held[column] != there[key][column]
            ]
        )

    def _key_of(self, row: Values) -> tuple[str | None, ...]:
        key = tuple(row.get(column) for column in self._key)
        _require(None not in key, f"the key {self._key} is {key}")
        return key


class _Loose:
    """A table whose rows may be equal. Rows of the same columns stand together, each counted."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], Counter[tuple[str | None, ...]]] = {}

    def __iter__(self) -> Any:
        for columns, group in self._groups.items():
            for values in group.elements():
                yield dict(zip(columns, values, strict=True))

    def add(self, row: Values) -> None:
        columns = tuple(sorted(row))
        self._groups.setdefault(columns, Counter())[tuple(row[column] for column in columns)] += 1

    def remove(self, old: Values, *, whole: bool) -> Values:
        """Take one row away: an equal one, else one of which less is known and the rest is equal."""
        _require(whole, "a table without a key needs whole old rows")
        for columns in sorted(self._groups, key=lambda group: len(old.keys() & set(group)), reverse=True):
            group = self._groups[columns]
            if old.keys() == set(columns):
                wanted = tuple(old[column] for column in columns)
                found = wanted if wanted in group else None
            else:
                found = next((row for row in group if _agree(dict(zip(columns, row, strict=True)), old)), None)
            if found is not None:
                group[found] -= 1
                if not group[found]:
                    del group[found]
                return dict(zip(columns, found, strict=True))
        raise _MisfitError(f"no such row is there: {_shorten(str(plain_row(old)))}")

    def clear(self) -> None:
        self._groups.clear()

    def keep_columns(self, columns: frozenset[str]) -> None:
        rows = list(self)
        self._groups.clear()
        for row in rows:
            self.add({column: value for column, value in row.items() if column in columns})

    def differences(self, rows: list[Values]) -> list[str]:
        """Take every held row away from the sample's; those that are best known choose first."""
        left = _Loose()
        for row in rows:
            left.add(row)
        surplus: list[str] = []
        for held in sorted(self, key=len, reverse=True):
            try:
                left.remove(held, whole=True)
            except _MisfitError:
                surplus.append(f"too many: {_shorten(str(plain_row(held)))}")
        return [f"missing: {_shorten(str(plain_row(row)))}" for row in left] + surplus


def _agree(one: Values, other: Values) -> bool:
    return all(one[column] == other[column] for column in one.keys() & other.keys())


def _shorten(text: str | None) -> str:
    return "NULL" if text is None else text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


# ---------------------------------------------------------------------------------------------- values as text

_UNQUOTED = re.compile(r'[^\s{}",\\]+\Z')


def _texts(row: Mapping[str, Any] | None) -> Values | None:
    return (
        None if row is None else {name: None if value is None else postgres_text(value) for name, value in row.items()}
    )


def postgres_text(value: Any) -> str:
    """The text that Postgres prints for a value (time zone UTC); bytes, also those of a uuid, as bytea."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"\\x{value.hex()}"
        case uuid.UUID():
            return f"\\x{value.hex}"
        case dt.datetime():
            return _moment(value)
        case dt.date():
            return value.isoformat()
        case list():
            return "{" + ",".join(_element(element) for element in value) + "}"
        case _:
            raise TypeError(f"no exact text for a {type(value).__name__}")


def _moment(value: dt.datetime) -> str:
    shown = value if value.tzinfo is None else value.astimezone(dt.UTC)
    text = shown.replace(tzinfo=None, microsecond=0).isoformat(" ")
    fraction = f".{shown.microsecond:06}".rstrip("0") if shown.microsecond else ""
    return text + fraction + ("" if value.tzinfo is None else "+00")


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    text = postgres_text(value)
    if isinstance(value, list) or (_UNQUOTED.match(text) and text.upper() != "NULL"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
