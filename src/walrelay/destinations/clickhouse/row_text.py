"""SQL by which ClickHouse writes a value out in the one form that Postgres and DuckDB write it in (`row_text` above).

Columns are given by their names in storage, which are ours. NULL stays NULL; what ClickHouse does not hold it has as
NULL, and `treated` says which values of the source these are.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from walrelay.decode.numeric import declared_decimal
from walrelay.destinations.clickhouse.dialect import WRAPPED, is_list, levels, literal, wide_decimal
from walrelay.destinations.clickhouse.facts import Stored
from walrelay.destinations.clickhouse.values import Years
from walrelay.destinations.row_text import can_write
from walrelay.model.schema import Column, PgType

_VALUE, _NULL, _FIELD, _ELEMENT = "char(31)", "char(30)", "char(29)", "char(28)"
_LOOSE = {"text", "varchar", "bpchar", "name", "citext"}
"""Of which the length stands at the row's end, as there."""
_BITS = {"float4": ("reinterpretAsUInt32", 32), "float8": ("reinterpretAsUInt64", 64)}


def row_hash(columns: Sequence[tuple[Column, Stored]]) -> str:
    """60 bits of the md5 of the row's text."""
    texts = [text_of(column, stored) for column, stored in columns]
    texts += [f"toString(lengthUTF8({stored.name}))" for column, stored in columns if _is_loose(column)]
    joined = f"arrayStringConcat([{', '.join(_marked(one) for one in texts)}], {_VALUE})"
    return f"toInt64(bitShiftRight(reinterpretAsUInt64(reverse(substring(MD5({joined}), 1, 8))), 4))"


def text_of(column: Column, stored: Stored) -> str:
    """A column's text."""
    x = stored.name
    if column.as_text:
        return x
    if not can_write(column.type):
        return f"if(isNull({x}), NULL, '?')"
    made = _value(column.type, x, 0)
    return f"if({stored.mark}, NULL, {made})" if stored.marked else made


def printed(column: Column, stored: Stored) -> str:
    """As people read it."""
    made = f"toString({stored.name})"
    return f"if({stored.mark}, NULL, {made})" if stored.marked else made


def _is_loose(column: Column) -> bool:
    type_ = column.type
    return column.as_text or type_.kind == "enum" or (type_.kind == "base" and type_.name in _LOOSE)


def _marked(text: str) -> str:
    return f"ifNull(CAST({text}, 'Nullable(String)'), {_NULL})"


def _value(type_: PgType, x: str, depth: int) -> str:
    if is_list(type_):
        return _array(type_, x, depth)
    match type_.kind:
        case "composite":
            parts = [_part(one.type, f"tupleElement({x}, {literal(one.name)})", depth) for one in type_.fields]
            return f"if(isNull({x}), NULL, concat({f', {_FIELD}, '.join(parts)}, ''))"
        case "range":
            return _range(type_, x, depth)
        case "enum":
            return f"toString({x})"
        case _:
            return _base(type_, x)


def _base(type_: PgType, x: str) -> str:
    name = type_.name
    if name in _BITS:
        function, bits = _BITS[name]
        return f"leftPad(bin({function}({x})), {bits}, '0')"
    if name == "numeric":
        declared = declared_decimal(type_.modifier) or wide_decimal(type_)
        return x if declared is None else f"toDecimalString({x}, {declared[1]})"
    if name == "money":
        return f"toDecimalString({x}, {type_.scale})"
    if name == "bytea":
        return f"lower(hex({x}))"
    if name == "date":
        return f"toString(toInt32({x}))"
    if name in {"timestamp", "timestamptz"}:
        return f"toString(toUnixTimestamp64Micro({x}))"
    if name == "interval":
        parts = (f"toString(tupleElement({x}, '{part}'))" for part in ("months", "days", "microseconds"))
        return f"if(isNull({x}), NULL, concat({', {}, '.format(literal(' ')).join(parts)}))"
    return f"toString({x})"


def _part(type_: PgType, x: str, depth: int) -> str:
    """Inside of something else, where an array is wrapped."""
    if is_list(type_):
        inner = _array(type_, f"tupleElement({x}, '{WRAPPED}')", depth)
        return _marked(f"if(isNull({x}), NULL, {inner})")
    return _marked(_value(type_, x, depth))


def _range(type_: PgType, x: str, depth: int) -> str:
    assert type_.element is not None
    lower, upper = (_part(type_.element, f"tupleElement({x}, '{end}')", depth) for end in ("lower", "upper"))
    marks = {mark: f"tupleElement({x}, '{mark}')" for mark in ("lower_inc", "upper_inc", "empty")}
    bounds = f"concat(if({marks['lower_inc']}, '[', '('), {lower}, ',', {upper}, if({marks['upper_inc']}, ']', ')'))"
    return f"if(isNull({x}), NULL, if({marks['empty']}, 'empty', {bounds}))"


def _array(type_: PgType, x: str, depth: int) -> str:
    """The lengths of all levels, then the elements one after the other."""
    count, first = levels(type_), x
    lengths = []
    for _ in range(count):
        lengths.append(f"toString(length({first})), ':'")
        first = f"{first}[1]"
    flat = x if count == 1 else f"arrayFlatten({x})"
    item = f"e{depth}"
    element = type_.element if type_.element is not None else PgType(700, "float4")
    part = _part(element, item, depth + 1)
    return f"concat({', '.join(lengths)}, arrayStringConcat(arrayMap({item} -> {part}, {flat}), {_ELEMENT}))"


def treated(column: Column, years: Years) -> sql.Composable | None:
    """SQL, for the source, for «there is something in this value that ClickHouse does not hold»."""
    return None if column.as_text else _unheld(column.type, sql.Identifier(column.name), years, 0)


def _unheld(type_: PgType, x: sql.Composable, years: Years, depth: int) -> sql.Composable | None:
    if not can_write(type_):
        return None
    match type_.kind:
        case "base":
            return _unheld_plain(type_, x, years)
        case "composite":
            parts = [(one.type, sql.SQL("({}).{}").format(x, sql.Identifier(one.name))) for one in type_.fields]
            return _any_of([_unheld(part, value, years, depth) for part, value in parts])
        case "range" if type_.element is not None:
            ends = [sql.SQL("lower({})").format(x), sql.SQL("upper({})").format(x)]
            return _any_of([_unheld(type_.element, end, years, depth) for end in ends])
        case "array" | "vector_array" | "multirange" if type_.element is not None:
            loop = sql.Identifier(f"_loop{depth}")
            test = _unheld(type_.element, sql.SQL("{}.e").format(loop), years, depth + 1)
            # In a select list, unnest() leaves composites whole.
            found = sql.SQL("EXISTS (SELECT FROM (SELECT unnest({}) AS e) AS {} WHERE {})")
            return None if test is None else found.format(x, loop, test)
        case _:
            return None


def _unheld_plain(type_: PgType, x: sql.Composable, years: Years) -> sql.Composable | None:
    if type_.schema != "pg_catalog":
        return None
    if type_.name in {"date", "timestamp", "timestamptz"}:
        moment = sql.SQL("({} AT TIME ZONE 'UTC')").format(x) if type_.name == "timestamptz" else x
        ends = {"first": sql.Literal(years.first), "last": sql.Literal(years.last + 1)}
        return sql.SQL(
            "(NOT isfinite({x}) OR {x} < date '1970-01-01' + {first} OR {x} >= date '1970-01-01' + {last})"
        ).format(x=moment, **ends)
    return sql.SQL("{} = 'NaN'").format(x) if wide_decimal(type_) is not None else None


def _any_of(tests: Sequence[sql.Composable | None]) -> sql.Composable | None:
    found = [one for one in tests if one is not None]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(found)) if found else None
