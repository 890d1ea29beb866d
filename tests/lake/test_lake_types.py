"""Every type, at its edges: copied into a lake, inserted and updated by changes, read by programs that are not ours.

Each row comes thrice: by the copy, as an insert, and as an update of a row that held something else in every column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.faults.pipeline_kit import drop_slot
from tests.lake.arrow_words import plain, spark_type
from tests.lake.lake_kit import Lake, catch_up
from tests.repetitions import some
from tests.roundtrip.compare import in_words, printed_by_postgres
from tests.roundtrip.test_stream_types import REFUSED_BY_SERVER, make_types
from tests.roundtrip.test_types import SPECIAL_CASES, SpecialCase
from tests.roundtrip.values import Case, cases_of
from walrelay.config.settings import copy_settings
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.model.special import Special, SpecialValues
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WIDE = TableName("public", "wide")
ROADS = {"copy": 0, "insert": 1000, "update": 2000}
"""Where the ids of the rows begin that come by each."""
POLICIES: dict[SpecialValues, dict[str, str]] = {
    "null": {},
    "clamp": {
        "date": "5874897-12-31",
        "-date": "4714-11-24 BC",
        "timestamp": "294247-01-10 04:00:54.775806",
        "-timestamp": "4714-11-24 00:00:00 BC",
        "timestamptz": "294247-01-10 04:00:54.775806+00",
        "-timestamptz": "4714-11-24 00:00:00+00 BC",
    },
}
"""What a lake holds where the source has ±infinity."""
INFINITY = re.compile(r"(-?)infinity")
"""Of a date or a timestamp; that of a number is written with a capital."""
CONFUSED, LISTS_OF_STRUCTS = {"pyiceberg"}, re.compile(r"list<[^<]*struct<")
"""Who takes a list of structs that is NULL for an empty one (`ArrowProjectionVisitor.list` in pyiceberg 0.12 leaves out
which are NULL); Spark is there to tell them apart."""
SHOWN = 100


@dataclass(frozen=True)
class Tried:
    """A column of the table, with the values that it has one after the other, over and over."""

    name: str
    case: Case
    special: SpecialCase | None = None

    def literal(self, row: int) -> str | None:
        return self.case.literals[row % len(self.case.literals)]

    def treated(self, row: int) -> Iterator[Special]:
        """What of the row's value no lake can hold."""
        literal = self.literal(row)
        if self.special is not None:
            if literal == self.special.literal:
                yield Special[self.special.special]
        else:
            kind = Special.DATE_INFINITY if "date" in self.case.type else Special.TIMESTAMP_INFINITY
            yield from [kind] * len(INFINITY.findall(literal or ""))

    def expected(self, row: int, type_: PgType, printed: str | None, policy: SpecialValues) -> str | None:
        """What Postgres prints, or what policy puts in its place."""
        if self.special is not None and self.literal(row) == self.special.literal:
            return self.special.null if policy == "null" else self.special.clamp
        return finite(type_, printed, POLICIES[policy])


def columns() -> list[Tried]:
    found = [Tried(case.table, case) for case in cases_of(18) if case.type not in REFUSED_BY_SERVER]
    for number, special in enumerate(SPECIAL_CASES):
        depth = special.type.count("[]")
        # The shape that most values have is the column's.
        usual = ["{" * depth + "7" + "}" * depth] * 3 if special.special == "ARRAY_SHAPE" else []
        case = Case(special.type, "", (special.literal, None, *usual))
        found.append(Tried(f"special_{number}", case, special))
    return found


COLUMNS = columns()
ROWS = max(len(one.case.literals) for one in COLUMNS)
NAMES = sql.SQL(", ").join(sql.Identifier(one.name) for one in COLUMNS)


def finite(type_: PgType, text: str | None, ends: dict[str, str]) -> str | None:
    """A text of Postgres's without ±infinity. Where nothing stands for it: NULL, also in arrays and composites; and
    for a range as a whole, which would be unbounded without it."""
    if text is None or not INFINITY.search(text):
        return text
    if ends:
        return INFINITY.sub(lambda found: quoted(type_, ends[found[1] + leaf(type_)]), text)
    match type_.kind:
        case "array":
            return INFINITY.sub("NULL", text)
        case "composite":
            return INFINITY.sub("", text)
        case "multirange":
            return re.sub(r"[\[(][^\[(]*infinity[\])]", "NULL", text)
        case _:
            return None


def leaf(type_: PgType) -> str:
    """The type in it that knows infinity."""
    if type_.element is not None:
        return leaf(type_.element)
    return "timestamptz" if type_.kind == "composite" else type_.name


def quoted(type_: PgType, text: str) -> str:
    return text if type_.kind == "base" or " " not in text else f'"{text}"'


def fill(connection: psycopg.Connection) -> None:
    """The rows that the copy is to bring, and those that the updates are to change."""
    make_types(connection, 18)
    types = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(one.name), sql.SQL(one.case.type)) for one in COLUMNS
    )
    connection.execute(sql.SQL("CREATE TABLE wide (id int4 PRIMARY KEY, {})").format(types))
    with connection.cursor().copy("COPY wide FROM STDIN") as copy:
        for row in range(ROWS):
            copy.write_row([ROADS["copy"] + row, *(one.literal(row) for one in COLUMNS)])
            copy.write_row([ROADS["update"] + row, *(one.literal(row + 1) for one in COLUMNS)])
    for one in COLUMNS:
        if one.case.altered:
            connection.execute(one.case.altered.encode())
    connection.execute("CREATE PUBLICATION p FOR TABLE wide")


def change(connection: psycopg.Connection) -> None:
    """Rows with the values of those that were copied; the values never leave the server."""
    insert = sql.SQL("INSERT INTO wide (id, {0}) SELECT id + {1}, {0} FROM wide WHERE id < {1}")
    connection.execute(insert.format(NAMES, sql.Literal(ROADS["insert"])))
    values = sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(one.name)) for one in COLUMNS)
    update = sql.SQL("UPDATE wide t SET ({}) = ROW({}) FROM wide s WHERE t.id = s.id + {}")
    connection.execute(update.format(NAMES, values, sql.Literal(ROADS["update"])))


def treated(rows: Iterable[int]) -> dict[Special, int]:
    return dict(Counter(special for row in rows for one in COLUMNS for special in one.treated(row)))


@dataclass(frozen=True)
class Source:
    """What Postgres says of the table."""

    schema: TableSchema
    printed: dict[str, list[str | None]] = field(repr=False)

    def differences(self, one: Tried, reader: str, table: pa.Table, policy: SpecialValues) -> list[str]:
        column, printed = self.schema.column(one.name), self.printed[one.name]
        is_confused = reader in CONFUSED and LISTS_OF_STRUCTS.search(str(table.schema.field(one.name).type))
        held = dict(zip(table["id"].to_pylist(), plain(table[one.name]), strict=True))
        assert len(held) == len(ROADS) * ROWS == table.num_rows
        wrong = []
        for row in range(ROWS):
            wanted = one.expected(row, column.type, printed[row], policy)
            found = {road: words(column, held[start + row]) for road, start in ROADS.items()}
            wrong += [
                f"{one.case.id} by {road}: {str(text)[:SHOWN]}, not {str(wanted)[:SHOWN]}"
                for road, text in found.items()
                if text != wanted and not (is_confused and without_empty(text) == without_empty(wanted))
            ]
        return wrong


def without_empty(text: str | None) -> str:
    return (text or "").replace("{}", "")


def words(column: Column, value: Any) -> str | None:
    if column.as_text:
        assert value is None or isinstance(value, str)
        return value
    return in_words(column.type, value)


def read_source(url: str, connection: psycopg.Connection) -> Source:
    with connect(PostgresSource(url)) as source:
        schema = read_schema(source, find_table(source, WIDE))
    asked = {one.name: re.sub(r"\bvalue\b", one.name, one.case.printed) for one in COLUMNS}
    return Source(schema, {name: printed_by_postgres(connection, WIDE, said) for name, said in asked.items()})


@pytest.mark.parametrize("policy", some(["null"], list(POLICIES)))
def test_every_value_is_as_postgres_prints_it_whether_copied_inserted_or_updated(
    policy: SpecialValues, database: str, lake: Lake, lake_spark: SparkSession, tmp_path: Path
) -> None:
    slot, settings = f"types_{uuid4().hex[:12]}", copy_settings(special_values=policy)
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            fill(connection)
            copied = catch_up(tmp_path, database, slot, lake, lake_spark, settings=settings)
            change(connection)
            changed = catch_up(tmp_path, database, slot, lake, lake_spark, settings=settings)
            source = read_source(database, connection)
    finally:
        drop_slot(database, slot)
    frame = lake.frame(lake_spark, "wide")
    wrong = [
        f"read by {reader}: {text}"
        for reader, table in {lake.reader: lake.arrow("wide"), "Spark": frame.toArrow()}.items()
        for one in COLUMNS
        for text in source.differences(one, reader, table, policy)
    ]
    assert not wrong, "\n".join(wrong)
    assert (copied.copied, changed.copied) == (["wide"], []), "what came later came by changes"
    assert copied.treated == treated([*range(ROWS), *range(1, ROWS + 1)])
    assert changed.treated == treated([*range(ROWS), *range(ROWS)])
    types = dict(frame.dtypes)
    assert {one.name: types[one.name] for one in COLUMNS if one.case.duckdb} == {
        one.name: lake.type_named(spark_type(one.case.duckdb)) for one in COLUMNS if one.case.duckdb
    }
