"""Every type, at its edges: copied into ClickHouse, inserted and updated by changes, read by a client that is not ours.

Each row comes thrice: by the copy, as an insert, and as an update of a row that held something else in every column.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.lake.arrow_words import plain
from tests.lake.test_lake_types import COLUMNS, ROADS, ROWS, Tried, change, fill, read_source
from tests.repetitions import some
from tests.roundtrip.compare import in_words
from tests.warehouse.clickhouse_kit import ClickHouse, catch_up, clickhouse, clickhouse_spark, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.dialect import DIALECT, WRAPPED, is_list, wide_decimal
from walrelay.model.schema import Column, PgType
from walrelay.model.special import Special, SpecialValues

__all__ = ["clickhouse", "clickhouse_spark", "place"]
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
WORDS = re.compile(r"(-?)infinity|\d+-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?(?:\+00)?)?(?: BC)?")
"""A date or a moment as Postgres prints it, also inside of something."""
ENDS = {
    "date": ("0001-01-01 BC", "9999-12-31"),
    "timestamp": ("0001-01-01 00:00:00 BC", "9999-12-31 23:59:59.999999"),
    "timestamptz": ("0001-01-01 00:00:00+00 BC", "9999-12-31 23:59:59.999999+00"),
}
"""The year 0 is 1 BC: what ClickHouse has of them."""
EDGES = re.compile(r"5874897-12-31|4714-11-24( 00:00:00(\+00)?)? BC|294247-01-10 04:00:54.775806(\+00)?")
"""Of Postgres's own types: what ±infinity is clamped to when it is decoded, so that they are not told apart then."""


def dated(type_: PgType) -> str | None:
    """The type in it that has years."""
    if type_.kind == "base":
        return type_.name if type_.schema == "pg_catalog" and type_.name in ENDS else None
    parts = [one.type for one in type_.fields] + ([type_.element] if type_.element else [])
    return next((found for part in parts if (found := dated(part))), None)


def is_beyond(words: str) -> bool:
    if "infinity" in words:
        return True
    year = int(words.split("-", maxsplit=1)[0])
    return year > 1 if words.endswith("BC") else year > 9999


def treated_in(one: Tried, row: int, type_: PgType, printed: str | None, policy: SpecialValues) -> list[Special]:
    """What of the row's value ClickHouse cannot hold."""
    if one.special is not None:
        return list(one.treated(row))
    if wide_decimal(type_) is not None:
        return [Special.NUMERIC_NAN] * (printed == "NaN")
    name, found = dated(type_), list[Special]()
    for match in WORDS.finditer(printed or "") if name else ():
        if is_beyond(match[0]) and not (policy == "clamp" and EDGES.fullmatch(match[0])):
            kinds = (Special.DATE_INFINITY, Special.DATE_YEARS)
            if name != "date":
                kinds = (Special.TIMESTAMP_INFINITY, Special.TIMESTAMP_YEARS)
            found.append(kinds[0 if "infinity" in match[0] else 1])
    return found


def expected(one: Tried, row: int, type_: PgType, printed: str | None, policy: SpecialValues) -> str | None:
    """What Postgres prints, or what policy puts in its place."""
    if one.special is not None and one.literal(row) == one.special.literal:
        said = one.special.null if policy == "null" else one.special.clamp
        # What one decoder clamps to is clamped again, to what ClickHouse has.
        return said if said is None or policy == "null" else _finite(type_, said, policy)
    if wide_decimal(type_) is not None and printed == "NaN":
        return None
    return printed if printed is None else _finite(type_, printed, policy)


def _finite(type_: PgType, printed: str, policy: SpecialValues) -> str | None:
    name = dated(type_)
    if name is None or not any(is_beyond(match[0]) for match in WORDS.finditer(printed)):
        return printed

    def end(match: re.Match[str]) -> str:
        if not is_beyond(match[0]):
            return match[0]
        low = match[0].startswith("-") or match[0].endswith("BC")
        made = ENDS[name][0 if low else 1]
        is_quoted = match.start() > 0 and printed[match.start() - 1] == '"'
        return f'"{made}"' if type_.kind != "base" and " " in made and not is_quoted else made

    if policy == "null" and type_.kind in {"base", "range"}:
        return None
    if policy == "null" and type_.kind == "multirange":
        ranges = re.findall(r"[\[(][^\[(]*?[\])]", printed)
        return "{" + ",".join("NULL" if any(map(is_beyond, _found(one))) else one for one in ranges) + "}"
    if policy == "null":
        nothing = "" if type_.kind == "composite" else "NULL"
        quoted = re.compile(f'"?({WORDS.pattern})"?')
        return quoted.sub(lambda match: nothing if is_beyond(match[1]) else match[0], printed)
    return WORDS.sub(end, printed)


def _found(text: str) -> list[str]:
    return [match[0] for match in WORDS.finditer(text)]


def held_words(column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.as_text:
        return value.decode()
    return in_words(column.type, given(column.type, value))


def given(type_: PgType, value: Any) -> Any:
    """A value as ClickHouse gives it, in the form in which the comparison knows it: text as bytes is text again, and
    what is wrapped is not."""
    if value is None:
        return None
    if type_.kind == "composite" and type_.fields:
        return {one.name: inside(one.type, value[one.name]) for one in type_.fields}
    if type_.kind == "range":
        assert type_.element is not None
        bounds = {name: inside(type_.element, value[name]) for name in ("lower", "upper")}
        return {**{name: one for name, one in value.items() if name not in bounds}, **bounds}
    if is_list(type_):
        return listed(type_.element, value, type_.dimensions if type_.kind == "array" else 1)
    if isinstance(value, bytes):
        if type_.name == "uuid" and type_.schema == "pg_catalog":
            return str(UUID(bytes=value)) if len(value) == 16 else value.decode()
        return value if DIALECT.target and is_bytes(type_) else value.decode()
    return value


def listed(element: PgType | None, value: Any, levels: int) -> Any:
    if element is None or value is None:
        return value
    return [inside(element, one) if levels == 1 else listed(element, one, levels - 1) for one in value]


def inside(type_: PgType, value: Any) -> Any:
    if is_list(type_) and value is not None:
        value = value[WRAPPED]
    return given(type_, value)


def is_bytes(type_: PgType) -> bool:
    from walrelay.decode.base import ARROW
    from walrelay.decode.registry import arrow_type

    return bool(pa.types.is_binary(arrow_type(type_, ARROW)) or pa.types.is_large_binary(arrow_type(type_, ARROW)))


def moments(type_: PgType, array: pa.Array) -> pa.Array:
    """ClickHouse has one type for moments; the source's says whether they are of a zone."""
    if pa.types.is_timestamp(array.type):
        kind = pa.timestamp("us", "UTC") if dated(type_) == "timestamptz" else pa.timestamp("us")
        return array.cast(pa.int64()).cast(kind)
    if pa.types.is_list(array.type):
        made = moments(type_, array.values)
        return pa.Array.from_buffers(
            pa.list_(made.type), len(array), array.buffers()[:2], offset=array.offset, children=[made]
        )
    if pa.types.is_struct(array.type):
        parts = [moments(type_, array.field(i)) for i in range(array.type.num_fields)]
        fields = [pa.field(old.name, part.type) for old, part in zip(array.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    return array


@pytest.mark.parametrize("lane", ["quick", "Spark's"])
@pytest.mark.parametrize("policy", some(["null"], ["null", "clamp"]))
def test_every_value_is_as_postgres_prints_it_whether_copied_inserted_or_updated(
    policy: SpecialValues,
    lane: str,
    database: str,
    clickhouse: ClickHouse,
    place: str,
    clickhouse_spark: SparkSession,
    tmp_path: Path,
) -> None:
    slot, settings = f"types_{uuid4().hex[:12]}", copy_settings(special_values=policy)

    def caught_up() -> Any:
        limits = Limits(quick_rows=0) if lane == "Spark's" else Limits()
        destination = ClickHouseDestination(clickhouse.url(place), limits=limits)
        return catch_up(destination, tmp_path, database, slot, clickhouse_spark, settings)

    try:
        with psycopg.connect(database, autocommit=True) as connection:
            fill(connection)
            copied = caught_up()
            change(connection)
            changed = caught_up()
            source = read_source(database, connection)
    finally:
        drop_slot(database, slot)
    table = clickhouse.arrow(place, "wide", use_strings=False)
    ids = table["id"].to_pylist()
    wrong: list[str] = []
    treated: dict[str, Counter[Special]] = {road: Counter() for road in ROADS}
    for one in COLUMNS:
        column = source.schema.column(one.name)
        array = table[one.name].combine_chunks()
        array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
        values = plain(moments(column.type, array))
        if f"{one.name}_is_null" in table.column_names:
            marks = table[f"{one.name}_is_null"].to_pylist()
            values = [None if is_null else value for value, is_null in zip(values, marks, strict=True)]
        held = dict(zip(ids, values, strict=True))
        assert len(held) == len(ROADS) * ROWS == table.num_rows
        for row in range(ROWS):
            printed = source.printed[one.name][row]
            wanted = expected(one, row, column.type, printed, policy)
            for road, start in ROADS.items():
                treated[road].update(treated_in(one, row, column.type, printed, policy))
                words = held_words(column, held[start + row])
                if words != wanted:
                    wrong.append(f"{one.case.id} by {road}: {str(words)[:100]}, not {str(wanted)[:100]}")
    assert not wrong, "\n".join(wrong)
    assert (copied.copied, changed.copied) == (["wide"], []), "what came later came by changes"
    assert changed.treated == {kind: count for kind, count in (treated["insert"] + treated["update"]).items() if count}
    assert copied.treated.keys() == changed.treated.keys()
