"""What may be said of a table: which part of it is replicated, under which names, and what is done to its rows on the
way. As data; who honours an option is not said here.

An option that was not said is None, so that options of several patterns can be laid over each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from walrelay.model.names import TableName
from walrelay.model.special import SpecialValues

History = Literal["off", "changes", "scd2"]
"""`changes`: each change is a row of its own, with operation, LSN, ordinal and commit time. `scd2`: each version of a
row is one, with the time from which and to which it held."""
OnSchemaChange = Literal["follow", "copy", "error"]
"""`follow`: the destination's table is altered as the source's was. `copy`: it is made anew. `error`: it stays as it is
and waits for a person."""
OnRemoved = Literal["keep", "drop"]
"""What becomes of the destination's table when the table leaves the publication."""
OnSilentChange = Literal["copy", "warn", "ignore"]
"""What is done about a table whose rows were changed without a message that tells."""


@dataclass(frozen=True, slots=True)
class Rename:
    """Other names at the destination; None and what is not in `columns` keep their own. `{schema}` and `{table}` stand
    for the source's names, as in `raw_{table}`."""

    schema: str | None = None
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, template in (("schema", self.schema), ("table", self.table)):
            if template is not None:
                _check_template(what, template)
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        if doubled := _repeated(self.columns.values()):
            raise ValueError(f"two columns cannot both become {doubled}")

    def name_of(self, name: TableName) -> TableName:
        """What the table is called at the destination."""
        return TableName(_filled(self.schema, name.schema, name), _filled(self.table, name.name, name))

    def __hash__(self) -> int:
        return hash((self.schema, self.table, tuple(sorted(self.columns.items()))))

    def __reduce__(self) -> tuple[type[Rename], tuple[str | None, str | None, dict[str, str]]]:
        # A mapping proxy cannot be pickled.
        return (Rename, (self.schema, self.table, dict(self.columns)))


@dataclass(frozen=True, slots=True)
class Hash:
    """These columns arrive as SHA-256 of the salt and their text, in hex; NULL stays NULL."""

    columns: tuple[str, ...]
    salt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class WithNull:
    """NULL in place of every value."""


@dataclass(frozen=True, slots=True)
class WithConstant:
    """The same value in place of every other; NULL stays NULL."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The last characters of a text stay; each one before them becomes an asterisk. NULL stays NULL."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("a mask keeps at least the last character; to keep none mask with null")


Mask = WithNull | WithConstant | KeepLast


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of a table, or of the tables that a pattern names. Columns are called by the source's names."""

    include: bool | None = None
    """False leaves the table out, though the publication has it."""

    rename: Rename | None = None
    """Other names at the destination, of schema, table and columns."""

    columns: tuple[str, ...] | None = None
    """Only these columns arrive; a column of the key must be among them."""

    leave_out: tuple[str, ...] | None = None
    """All columns arrive but these, also those that the table gets later. Instead of `columns`, not beside it."""

    hash: Hash | None = None
    """Columns that arrive as a hash: equal values stay equal, and are not readable."""

    mask: Mapping[str, Mask] | None = None
    """Columns whose values do not arrive, and what does instead."""

    soft_deletes: bool | None = None
    """A deleted row stays, and the column `_walrelay_deleted` says that it was deleted."""

    history: History | None = None
    """Whether the destination's table holds each change, or each version of a row, instead of the rows as they are."""

    on_schema_change: OnSchemaChange | None = None
    """What is done when the table's columns or key are altered."""

    on_removed: OnRemoved | None = None
    """What becomes of the destination's table when the table leaves the publication."""

    on_silent_change: OnSilentChange | None = None
    """As the pipeline's `on_silent_change`, for this table."""

    special_values: SpecialValues | None = None
    """As the pipeline's `special_values`, for this table."""

    def __post_init__(self) -> None:
        if self.mask is not None:
            object.__setattr__(self, "mask", MappingProxyType(dict(self.mask)))
        for contradiction in self._contradictions():
            raise ValueError(contradiction)

    def said(self) -> tuple[str, ...]:
        """The names of the options that were given."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) is not None)

    def under(self, other: TableOptions) -> TableOptions:
        """These, with each that `other` says in its place. Raises ValueError where the two contradict each other."""
        return replace(self, **{name: getattr(other, name) for name in other.said()})

    def _contradictions(self) -> Iterator[str]:
        if self.columns is not None and self.leave_out is not None:
            yield "columns and leave_out cannot both be said of a table"
        if self.soft_deletes and self.history not in (None, "off"):
            yield "soft_deletes and history cannot both be said of a table: a history keeps deleted rows anyway"
        hashed, masked = set(self.hash.columns if self.hash else ()), set(self.mask or ())
        if both := sorted(hashed & masked):
            yield f"a column is either hashed or masked, not both: {both[0]}"
        absent = set(self.leave_out or ())
        renamed = set(self.rename.columns) if self.rename else set()
        for column in sorted(hashed | masked | renamed):
            if column in absent or (self.columns is not None and column not in self.columns):
                yield f"something is to be done to a column that does not arrive: {column}"

    def __hash__(self) -> int:
        mask = None if self.mask is None else tuple(sorted(self.mask.items(), key=lambda item: item[0]))
        return hash(tuple(mask if one.name == "mask" else getattr(self, one.name) for one in fields(self)))

    def __reduce__(self) -> tuple[Callable[..., TableOptions], tuple[dict[str, object]]]:
        said = {name: getattr(self, name) for name in self.said()}
        if self.mask is not None:
            said["mask"] = dict(self.mask)
        return (_remade, (said,))


def _remade(said: dict[str, object]) -> TableOptions:
    return TableOptions(**said)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TablePattern:
    """Which tables options are for: `shop.orders`, `shop.*`, `*.audit_*`, `*`. `*` is any run of characters and `?` is
    any one, outside of double quotes. Without a schema it is of the schema public, but `*` alone is all tables."""

    schema: str
    table: str
    """Each as a regular expression."""
    exactness: tuple[bool, bool, int, int]
    """Greater is more exact: a table's name without wildcards first, then a schema's, then the characters of both."""
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Raises ValueError for what is no pattern."""
        parts = _parts(text)
        if len(parts) == 1:
            parts.insert(0, [("*", True)] if text.strip() == "*" else [("public", False)])
        if len(parts) != 2:
            raise ValueError(f"not a table, nor a pattern of tables: {text!r}")
        schema, table = parts
        exactness = (_is_exact(table), _is_exact(schema), _length(table), _length(schema))
        return cls(_expression(schema), _expression(table), exactness, text)

    @property
    def is_exact(self) -> bool:
        """Whether it can name one table only."""
        return self.exactness[0] and self.exactness[1]

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        return re.compile(self.schema, re.DOTALL), re.compile(self.table, re.DOTALL)

    def matches(self, name: TableName) -> bool:
        schema, table = self._compiled
        return bool(schema.fullmatch(name.schema) and table.fullmatch(name.name))


def tables_of(patterns: Mapping[str, TableOptions], name: TableName) -> TableOptions:
    """The options of one table: of every pattern that names it, the more exact over the less exact, and of equally
    exact ones the later over the earlier. Raises ValueError for a bad pattern, and for options that contradict."""
    found = [(TablePattern.parse(text), options) for text, options in patterns.items()]
    matching = [(pattern, options) for pattern, options in found if pattern.matches(name)]
    made = TableOptions()
    for _, options in sorted(matching, key=lambda item: item[0].exactness):  # which keeps the order of equal ones
        made = made.under(options)
    return made


_Part = list[tuple[str, bool]]
"""A name in pieces; of each whether its wildcards are meant as such."""
_PIECE = re.compile(r'"((?:[^"]|"")+)"|([^".]+)|(\.)')


def _parts(text: str) -> list[_Part]:
    parts: list[_Part] = [[]]
    at, rest = 0, text.strip()
    while at < len(rest):
        match = _PIECE.match(rest, at)
        if match is None:
            raise ValueError(f"not a table, nor a pattern of tables: {text!r}")
        if match[3]:
            parts.append([])
        elif match[1] is not None:
            parts[-1].append((match[1].replace('""', '"'), False))
        else:
            parts[-1].append((match[2].strip().lower(), True))
        at = match.end()
    if not all(parts):
        raise ValueError(f"not a table, nor a pattern of tables: {text!r}")
    return parts


def _expression(part: _Part) -> str:
    pieces = []
    for text, has_wildcards in part:
        escaped = re.escape(text)
        pieces.append(escaped.replace(r"\*", ".*").replace(r"\?", ".") if has_wildcards else escaped)
    return "".join(pieces)


def _is_exact(part: _Part) -> bool:
    return not any(has_wildcards and set(text) & set("*?") for text, has_wildcards in part)


def _length(part: _Part) -> int:
    return sum(len(text) - (sum(map(text.count, "*?")) if has_wildcards else 0) for text, has_wildcards in part)


_PLACEHOLDER = re.compile(r"\{(\w*)\}")


def _check_template(what: str, template: str) -> None:
    if not template:
        raise ValueError(f"a {what} needs a name")
    if unknown := [one for one in _PLACEHOLDER.findall(template) if one not in ("schema", "table")]:
        raise ValueError(f"there is no {{{unknown[0]}}} in a name; there are {{schema}} and {{table}}")


def _filled(template: str | None, own: str, name: TableName) -> str:
    if template is None:
        return own
    known = {"schema": name.schema, "table": name.name}
    return _PLACEHOLDER.sub(lambda match: known[match[1]], template)


def _repeated(values: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
