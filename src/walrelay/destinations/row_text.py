"""SQL that writes a value out as text, in one form that Postgres and DuckDB both produce by their own means.

Where the two print a value differently (floating-point numbers, timestamps, intervals), the form is its bits
or parts. What DuckDB cannot hold is written as NULL on the source: that is what the policy
`special_values = null` makes of it.

No two rows have the same text: values are separated by characters that only text can hold, and of text the length
stands at the row's end. (Within arrays of text, elements that hold U+001C or U+001E are not told apart.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from walrelay.decode.numeric import declared_decimal
from walrelay.model.schema import Column, PgType


@dataclass(frozen=True, slots=True)
class Form:
    """How a value `{x}` becomes text, on either side. NULL stays NULL."""

    postgres: LiteralString
    duckdb: LiteralString = "{x}::VARCHAR"


AS_TEXT = Form("{x}::text")
# By the output function, where a cast to text does otherwise: char(n) loses its padding, inet gains a mask.
AS_PRINTED = Form("CASE WHEN {x} IS NOT NULL THEN format('%s', {x}) END")
AS_NUMBER = Form("{x}::oid::text")
DECIMAL = Form("nullif({x}, 'NaN')::text")
# Where all digits are after the point, DuckDB prints no zero before it.
FRACTION = Form(DECIMAL.postgres, r"regexp_replace({x}::VARCHAR, '^(-?)[.]', '\10.')")
# Microseconds since 1970. The last 29 years that Postgres knows do not fit.
TIMESTAMP = Form(
    "CASE WHEN NOT isfinite({x}) THEN {x}::text WHEN {x} < '294247-01-10 04:00:54.775807'"
    " THEN (extract(epoch FROM {x}) * 1000000)::int8::text END",
    "CASE WHEN isfinite({x}) THEN epoch_us({x})::VARCHAR ELSE {x}::VARCHAR END",
)
# Months, days, microseconds.
_PARTS: LiteralString = (
    "concat_ws(' ', (extract(year FROM {x}) * 12 + extract(month FROM {x}))::int8,"
    " extract(day FROM {x})::int8,"
    " (extract(hour FROM {x})::int8 * 60 + extract(minute FROM {x})::int8) * 60000000"
    " + extract(microseconds FROM {x})::int8)"
)

_PLAIN = """
    bool int2 int4 int8 oid xid cid xid8 numeric uuid time text varchar name refcursor json jsonb jsonpath citext ltree
"""
_PRINTED = """
    bpchar char xml inet cidr macaddr macaddr8 bit varbit point lseg box path polygon line circle tsvector
    tsquery pg_lsn tid timetz hstore lquery ltxtquery
"""
_OBJECTS = """
    regclass regtype regproc regprocedure regoper regoperator regrole regnamespace regconfig regdictionary
    regcollation
"""

FORMS: dict[str, Form] = {
    **dict.fromkeys(_PLAIN.split(), AS_TEXT),
    **dict.fromkeys(_PRINTED.split(), AS_PRINTED),
    **dict.fromkeys(_OBJECTS.split(), AS_NUMBER),
    "float4": Form("('x' || encode(float4send({x}), 'hex'))::bit(32)::text", "{x}::BIT::VARCHAR"),
    "float8": Form("('x' || encode(float8send({x}), 'hex'))::bit(64)::text", "{x}::BIT::VARCHAR"),
    "money": Form("{x}::numeric::text"),
    "bytea": Form("encode({x}, 'hex')", "lower(hex({x}))"),
    "date": Form(
        "CASE WHEN isfinite({x}) THEN ({x} - date '1970-01-01')::text ELSE {x}::text END",
        "CASE WHEN isfinite({x}) THEN ({x} - DATE '1970-01-01')::VARCHAR ELSE {x}::VARCHAR END",
    ),
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "interval": Form(
        "CASE WHEN isfinite({x}) THEN " + _PARTS + " END", "CASE WHEN {x} IS NOT NULL THEN " + _PARTS + " END"
    ),
}
_EXTENSIONS = {"citext", "hstore", "ltree"}
_LOOSE = {"text", "varchar", "bpchar", "name", "citext"}
"""Types whose values may hold the characters that separate values, or stand for NULL."""
_SPECIAL: dict[str, LiteralString] = {
    "timestamp": "isfinite({x}) AND {x} >= '294247-01-10 04:00:54.775807'",
    "timestamptz": "isfinite({x}) AND {x} >= '294247-01-10 04:00:54.775807'",
    "interval": "NOT isfinite({x})",
}
_FLOAT4 = PgType(700, "float4")


def can_write(type_: PgType) -> bool:
    """Whether both sides can write the type's values out alike."""
    if type_.kind == "base":
        ours = type_.schema == "pg_catalog" or type_.extension in _EXTENSIONS
        return _is_vector(type_) or (ours and type_.name in FORMS)
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return type_.kind == "enum" or (bool(parts) and all(can_write(part) for part in parts))


def _is_vector(type_: PgType) -> bool:
    return type_.extension == "vector" and type_.name in ("vector", "halfvec")


def _form_of(type_: PgType) -> Form:
    declared = declared_decimal(type_.modifier) if type_.name == "numeric" else None
    if declared is None:
        return FORMS[type_.name]
    precision, scale = declared
    return FRACTION if precision == scale else DECIMAL


def _is_loose(column: Column) -> bool:
    return column.as_text or column.type.kind == "enum" or (column.type.kind == "base" and column.type.name in _LOOSE)


def special(column: Column) -> sql.Composable | None:
    """SQL for «the source's value is one that policy treats», where the type has such values."""
    type_, x = column.type, sql.Identifier(column.name)
    if column.as_text or not can_write(type_):
        return None
    if type_.kind == "array":
        return sql.SQL("array_ndims({}) <> {}").format(x, sql.Literal(type_.dimensions))
    if type_.kind == "base" and type_.name == "numeric" and declared_decimal(type_.modifier) is not None:
        return sql.SQL("{} = 'NaN'").format(x)
    test = _SPECIAL.get(type_.name) if type_.kind == "base" else None
    return None if test is None else sql.SQL(test).format(x=x)


class Side(ABC):
    """Writes the SQL for one of the two. `depth` keeps the names of nested loops apart."""

    def row(self, columns: Sequence[Column]) -> sql.Composable:
        """The row's text, NULLs marked."""
        texts = [self.column(column) for column in columns]
        return self._joined([*texts, *(self._length(column) for column in columns if _is_loose(column))])

    def row_hash(self, columns: Sequence[Column]) -> sql.Composable:
        """The row's hash; a row without columns has one, too."""
        return self.hash(self.row(columns)) if columns else sql.SQL("0")

    @abstractmethod
    def printed(self, column: Column) -> sql.Composable:
        """The value as people read it."""

    @abstractmethod
    def _joined(self, texts: Sequence[sql.Composable]) -> sql.Composable: ...

    @abstractmethod
    def _length(self, column: Column) -> sql.Composable: ...

    @abstractmethod
    def hash(self, text: sql.Composable) -> sql.Composable:
        """60 bits of the text's md5 as a number."""

    def column(self, column: Column) -> sql.Composable:
        name = sql.Identifier(column.name)
        if column.as_text:
            return self._form(AS_TEXT, name)
        if not can_write(column.type):
            return sql.SQL("CASE WHEN {} IS DISTINCT FROM NULL THEN '?' END").format(name)
        return self.value(column.type, name, 0)

    def value(self, type_: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        """The value's text."""
        match type_.kind:
            case "base" if _is_vector(type_):
                return self._vector(x, depth)
            case "base":
                return self._form(_form_of(type_), x)
            case "enum":
                return self._form(AS_TEXT, x)
            case "composite":
                return self._composite(type_, x, depth)
            case "range":
                return self._range(_element(type_), x, depth)
            case "multirange":
                return self._multirange(_element(type_), x, depth)
            case "array" | "vector_array":
                return self._array(_element(type_), x, type_.dimensions, depth)

    def _part(self, type_: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        return marked(self.value(type_, x, depth))

    def _composite(self, type_: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        fields = (
            self._part(part.type, sql.SQL("({}).{}").format(x, sql.Identifier(part.name)), depth)
            for part in type_.fields
        )
        # Postgres's IS NULL holds also for a composite whose fields are all NULL.
        return sql.SQL("CASE WHEN {} IS DISTINCT FROM NULL THEN {} END").format(
            x, sql.SQL(" || chr(29) || ").join(fields)
        )

    def _range(self, bound: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        return sql.SQL(
            "CASE WHEN {empty} THEN 'empty' WHEN NOT {empty} THEN CASE WHEN {lower_inc} THEN '[' ELSE '(' END"
            " || {lower} || ',' || {upper} || CASE WHEN {upper_inc} THEN ']' ELSE ')' END END"
        ).format(
            empty=self._of_range("empty", x),
            lower_inc=self._of_range("lower_inc", x),
            upper_inc=self._of_range("upper_inc", x),
            lower=self._part(bound, self._of_range("lower", x), depth),
            upper=self._part(bound, self._of_range("upper", x), depth),
        )

    @abstractmethod
    def _form(self, form: Form, x: sql.Composable) -> sql.Composable: ...

    @abstractmethod
    def _of_range(self, word: LiteralString, x: sql.Composable) -> sql.Composable: ...

    @abstractmethod
    def _vector(self, x: sql.Composable, depth: int) -> sql.Composable: ...

    @abstractmethod
    def _multirange(self, range_: PgType, x: sql.Composable, depth: int) -> sql.Composable: ...

    @abstractmethod
    def _array(self, element: PgType, x: sql.Composable, levels: int, depth: int) -> sql.Composable:
        """The lengths of all levels, then the elements one after the other."""


class PostgresSide(Side):
    def printed(self, column: Column) -> sql.Composable:
        return sql.SQL(AS_PRINTED.postgres).format(x=sql.Identifier(column.name))

    def _joined(self, texts: Sequence[sql.Composable]) -> sql.Composable:
        return sql.SQL("array_to_string(ARRAY[{}]::text[], chr(31), chr(30))").format(sql.SQL(", ").join(texts))

    def _length(self, column: Column) -> sql.Composable:
        x = sql.Identifier(column.name)
        if column.type.name == "bpchar" and not column.as_text:  # a cast would take the padding away
            return sql.SQL("CASE WHEN {x} IS NOT NULL THEN length(format('%s', {x}))::text END").format(x=x)
        return sql.SQL("length({}::text)::text").format(x)

    def hash(self, text: sql.Composable) -> sql.Composable:
        return sql.SQL("('x' || substr(md5(convert_to({}, 'UTF8')), 1, 15))::bit(60)::int8").format(text)

    def _form(self, form: Form, x: sql.Composable) -> sql.Composable:
        return sql.SQL(form.postgres).format(x=x)

    def _of_range(self, word: LiteralString, x: sql.Composable) -> sql.Composable:
        return sql.SQL("{}({})").format(sql.SQL("isempty" if word == "empty" else word), x)

    def _vector(self, x: sql.Composable, depth: int) -> sql.Composable:
        return self._array(_FLOAT4, sql.SQL("{}::real[]").format(x), 1, depth)

    def _multirange(self, range_: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        items = sql.SQL("unnest({}) WITH ORDINALITY AS {}(e, n)").format(x, _loop(depth))
        return sql.SQL(
            "CASE WHEN {x} IS NOT NULL THEN (SELECT count(*) FROM unnest({x})) || ':' || {elements} END"
        ).format(x=x, elements=self._elements(range_, items, depth))

    def _array(self, element: PgType, x: sql.Composable, levels: int, depth: int) -> sql.Composable:
        length: LiteralString = "coalesce(array_length({}, {}), 0) || ':'"
        lengths = sql.SQL(" || ").join(sql.SQL(length).format(x, sql.Literal(k + 1)) for k in range(levels))
        # In a select list, unnest() leaves composites whole.
        items = sql.SQL("(SELECT unnest({x}) AS e, generate_series(1, cardinality({x})) AS n) AS {}")
        # Other dimensions than declared are among what becomes NULL.
        return sql.SQL(
            "CASE WHEN {x} IS NOT NULL AND coalesce(array_ndims({x}), {levels}) = {levels}"
            " THEN {lengths} || {elements} END"
        ).format(
            x=x,
            levels=sql.Literal(levels),
            lengths=lengths,
            elements=self._elements(element, items.format(_loop(depth), x=x), depth),
        )

    def _elements(self, element: PgType, items: sql.Composable, depth: int) -> sql.Composable:
        loop = _loop(depth)
        part = self._part(element, sql.SQL("{}.e").format(loop), depth + 1)
        return sql.SQL("coalesce((SELECT string_agg({}, chr(28) ORDER BY {}.n) FROM {}), '')").format(part, loop, items)


class DuckDBSide(Side):
    def printed(self, column: Column) -> sql.Composable:
        return sql.SQL("{}::VARCHAR").format(sql.Identifier(column.name))

    def _joined(self, texts: Sequence[sql.Composable]) -> sql.Composable:
        return sql.SQL("concat_ws(chr(31), {})").format(sql.SQL(", ").join(map(marked, texts)))

    def _length(self, column: Column) -> sql.Composable:
        return sql.SQL("length({})::VARCHAR").format(sql.Identifier(column.name))

    def hash(self, text: sql.Composable) -> sql.Composable:
        return sql.SQL("('0x' || substr(md5({}), 1, 15))::BIGINT").format(text)

    def _form(self, form: Form, x: sql.Composable) -> sql.Composable:
        return sql.SQL(form.duckdb).format(x=x)

    def _of_range(self, word: LiteralString, x: sql.Composable) -> sql.Composable:
        return sql.SQL("({}).{}").format(x, sql.SQL(word))

    def _vector(self, x: sql.Composable, depth: int) -> sql.Composable:
        return self._array(_FLOAT4, x, 1, depth)

    def _multirange(self, range_: PgType, x: sql.Composable, depth: int) -> sql.Composable:
        return self._array(range_, x, 1, depth)

    def _array(self, element: PgType, x: sql.Composable, levels: int, depth: int) -> sql.Composable:
        first, flat, lengths = x, x, list[sql.Composable]()
        for level in range(levels):
            lengths.append(sql.SQL("coalesce(len({}), 0) || ':'").format(first))
            first = sql.SQL("({})[1]").format(first)
            flat = flat if level == 0 else sql.SQL("flatten({})").format(flat)
        return sql.SQL(
            "CASE WHEN {x} IS NOT NULL THEN {lengths}"
            " || array_to_string(list_transform({flat}, lambda {loop}: {part}), chr(28)) END"
        ).format(
            x=x,
            lengths=sql.SQL(" || ").join(lengths),
            flat=flat,
            loop=_loop(depth),
            part=self._part(element, _loop(depth), depth + 1),
        )


def marked(text: sql.Composable) -> sql.Composable:
    return sql.SQL("coalesce({}, chr(30))").format(text)


def _loop(depth: int) -> sql.Identifier:
    return sql.Identifier(f"_loop{depth}")


def _element(type_: PgType) -> PgType:
    assert type_.element is not None, f"{type_} has no element"
    return type_.element
