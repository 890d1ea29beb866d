"""Every type, at its edges: copied into a warehouse, inserted and updated by changes, read by the service's own client.

Each row comes thrice: by the copy, as an insert, and as an update of a row that held something else in every column.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.lake.arrow_words import INTERVAL, interval, plain
from tests.lake.test_lake_types import COLUMNS, ROADS, ROWS, SHOWN, Tried, change, fill, read_source, treated, words
from tests.warehouse.bigquery_kit import BigQueryPlace
from tests.warehouse.snowflake_kit import SnowflakePlace
from tests.warehouse.warehouse_kit import Place, catch_up, verified
from walrelay.decode.numeric import declared_decimal
from walrelay.model.schema import PgType
from walrelay.model.special import Special

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

FAR = re.compile(r"\bBC\b|\b\d{5,}-\d\d-\d\d")
"""A day that no warehouse has."""
NULLS = re.compile(r"(?<=[{,])NULL(?:,|(?=[}]))")
YEARS = {Special.DATE_YEARS, Special.TIMESTAMP_YEARS}


def held_by(place: Place) -> dict[str, dict[int, Any]]:
    """Of each column the values, by id, in the form that `tests.roundtrip.compare` writes as Postgres prints it."""
    return _bigquery(place) if isinstance(place, BigQueryPlace) else _snowflake(place)


def _bigquery(place: BigQueryPlace) -> dict[str, dict[int, Any]]:
    job = place.client.query(f"SELECT * FROM {place.table('wide')}")
    table = job.result().to_arrow(create_bqstorage_client=False)
    ids = table["id"].to_pylist()
    return {name: dict(zip(ids, plain(table[name]), strict=True)) for name in table.column_names}


def _snowflake(place: SnowflakePlace) -> dict[str, dict[int, Any]]:
    rows = place.rows("wide")
    return {name: {row["id"]: row[name] for row in rows} for name in rows[0]}


def restored(type_: PgType, value: Any, *, is_top: bool = True) -> Any:
    """What a service gave, without its own ways: digits, names and text in structs, lists in structs."""
    if value is None:
        return None
    if isinstance(value, dict) and type_.kind == "composite":
        given = {unquote(name): part for name, part in value.items()}
        return {one.name: restored(one.type, given[one.name], is_top=False) for one in type_.fields}
    if isinstance(value, dict) and type_.kind == "range":
        assert type_.element is not None
        ends = {end: restored(type_.element, value[end], is_top=False) for end in ("lower", "upper")}
        return {**value, **ends}
    if isinstance(value, dict) and list(value) == INTERVAL:
        return interval(*value.values())
    if isinstance(value, list):
        return [_item(type_, one) for one in value]
    return _leaf(type_, value, is_top)


def _item(type_: PgType, value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["items"]:
        value = value["items"]
    if isinstance(value, list) and type_.kind == "array":
        return restored(type_, value, is_top=False)
    return restored(type_.element or PgType(700, "float4"), value, is_top=False)


def _leaf(type_: PgType, value: Any, is_top: bool) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if type_.kind != "base":
        return value if isinstance(value, str) else str(value)
    if type_.name in ("float4", "float8"):
        return float(value)
    if type_.name == "numeric" and (declared := declared_decimal(type_.modifier)) is not None:
        return format(Decimal(value).quantize(Decimal(1).scaleb(-declared[1])), "f")
    if type_.name == "money":
        return format(Decimal(value).quantize(Decimal("0.01")), "f")
    if isinstance(value, bool | bytes):
        return value
    text = str(value)
    if type_.name == "bytea" and not is_top:
        return bytes.fromhex(text)
    if type_.name.startswith("timestamp") and "T" in text:
        return re.sub(r"\.?0*(\+00:00)?$", lambda found: "+00" if found[1] else "", text.replace("T", " "))
    return text


def expected(place: Place, one: Tried, row: int, type_: PgType, printed: str | None) -> str | None:
    """What Postgres prints, or what policy puts in its place."""
    wanted = one.expected(row, type_, printed, "null")
    if place.name == "bigquery" and type_.kind in ("array", "multirange", "vector_array"):
        return "{}" if wanted is None else NULLS.sub("", wanted).replace(",}", "}")
    return wanted


def test_every_value_is_as_postgres_prints_it_whether_copied_inserted_or_updated(
    place: Place, database: str, warehouse_spark: SparkSession, tmp_path: Path
) -> None:
    slot = f"types_{uuid4().hex[:12]}"
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            fill(connection)
            copied = catch_up(place, tmp_path, database, slot, warehouse_spark)
            change(connection)
            changed = catch_up(place, tmp_path, database, slot, warehouse_spark)
            source = read_source(database, connection)
        report = verified(place, tmp_path, database, slot, warehouse_spark)
    finally:
        drop_slot(database, slot)
    held, wrong, far = held_by(place), list[str](), 0
    for one in COLUMNS:
        column = source.schema.column(one.name)
        for row in range(ROWS):
            printed = source.printed[one.name][row]
            if printed is not None and FAR.search(printed):
                far += 1
                continue
            wanted = expected(place, one, row, column.type, printed)
            for road, start in ROADS.items():
                value = held[one.name][start + row]
                found = value if column.as_text else words(column, restored(column.type, value))
                if found != wanted:
                    wrong.append(f"{one.case.id} by {road}: {str(found)[:SHOWN]}, not {str(wanted)[:SHOWN]}")
    assert not wrong, "\n".join(wrong)
    assert far, "there are days that no warehouse has"
    assert (copied.copied, changed.copied) == (["wide"], []), "what came later came by changes"
    known = treated([*range(ROWS), *range(ROWS)])
    assert {kind: changed.treated.get(kind, 0) for kind in known} == known
    assert set(changed.treated) >= YEARS and set(copied.treated) >= YEARS
    assert (Special.ARRAY_NULL in changed.treated) == (place.name == "bigquery")
    (table,) = report.tables
    assert table.rows == len(ROADS) * ROWS
    odd = {name for one in table.differences for name in one.columns}
    nested = {one.name for one in source.schema.columns if one.type.kind not in ("base", "enum")}
    assert odd <= nested, "of a column of its own, what was treated is known"
