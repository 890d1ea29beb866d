"""Every type, at its edges: inserted in Postgres, copied, read back from DuckDB, compared with what Postgres prints."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg import sql

from tests.roundtrip.compare import column_type, printed_by_postgres, read_back
from tests.roundtrip.copying import Copied, copy_table, started
from tests.roundtrip.values import AS_TEXT, CASES, EXTENSIONS, LAST_STAMP, TYPES, Case, cases_of
from walrelay.config.choices import UnknownTypes
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.duckdb.dialect import DIALECT
from walrelay.errors import SpecialValueError
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special, SpecialValues
from walrelay.pipeline import Pipeline
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

VERSIONS = (14, 16, 18)
EACH_CASE = [
    pytest.param(version, case, id=f"{version}-{case.id}") for version in VERSIONS for case in cases_of(version)
]


@dataclass
class World:
    """A server's tables, one a case, and their copies in DuckDB."""

    version: int
    url: str
    postgres: psycopg.Connection
    copies: Any
    copied: dict[str, Copied] = field(default_factory=dict)


WorldOf = Callable[[int], World]


def fill(connection: psycopg.Connection, version: int) -> None:
    """Make all types, and a table for each case with its values."""
    extensions = (*EXTENSIONS, "vector") if version == 18 else EXTENSIONS
    for extension in extensions:
        connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    connection.execute(TYPES.encode())
    for case in cases_of(version):
        connection.execute(f"CREATE TABLE {case.table} (id int4 PRIMARY KEY, value {case.type})".encode())
        with connection.cursor().copy(f"COPY {case.table} FROM STDIN".encode()) as copy:
            for row in enumerate(case.literals):
                copy.write_row(row)
        if case.altered:
            connection.execute(case.altered.encode())


def copy_all(
    source: PostgresSource, path: Path, cases: Iterable[Case], unknown_types: UnknownTypes = "bytes"
) -> dict[str, Copied]:
    """Copy the tables of these cases into a DuckDB file, a few at a time."""
    destination = started(path)
    with (
        exported_snapshot(source, application="walrelay roundtrip") as snapshot,
        # While it is open here, it need not be opened and written out anew for every table.
        duckdb.connect(path),
        ThreadPoolExecutor(4) as pool,
    ):
        copying = {
            case.id: pool.submit(copy_table, source, snapshot, case.table, destination, unknown_types=unknown_types)
            for case in cases
        }
        return {name: copied.result() for name, copied in copying.items()}


@contextmanager
def copied_world(server: EmbeddedPostgres, directory: Path) -> Iterator[World]:
    url = server.create_database("roundtrip")
    path = directory / "copies.duckdb"
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, server.version)
        copied = copy_all(PostgresSource(url), path, cases_of(server.version))
        with duckdb.connect(path, read_only=True) as copies:
            yield World(server.version, url, connection, copies, copied)


@pytest.fixture(scope="module")
def world_of(
    postgres_server: Callable[[int], EmbeddedPostgres], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorldOf]:
    """Gives the copies made from a version of Postgres. Made once, when first asked for, also if that fails."""
    made: dict[int, World | None] = {}
    with ExitStack() as worlds:

        def world(version: int) -> World:
            if version not in made:
                made[version] = None
                copying = copied_world(postgres_server(version), tmp_path_factory.mktemp("copies"))
                made[version] = worlds.enter_context(copying)
            found = made[version]
            assert found is not None, f"copying from Postgres {version} failed in an earlier test"
            return found

        yield world


def check(world: World, copies: Any, case: Case, copied: Copied) -> None:
    """The copy in `copies` has the type of the case, and every value as Postgres prints it."""
    table, column = TableName("public", case.table), copied.schema.column("value")
    for named in (case.duckdb, DIALECT.column_type(column)):
        assert copies.execute(f"SELECT typeof(NULL::{named})").fetchone() == (str(column_type(copies, table, "value")),)
    printed = printed_by_postgres(world.postgres, table, case.printed)
    assert len(printed) == len(case.literals)
    assert read_back(copies, table, column) == printed


def test_each_case_has_a_table_of_its_own() -> None:
    assert len({case.table for case in CASES}) == len(CASES)


@pytest.mark.parametrize(("version", "case"), EACH_CASE)
def test_value_reads_back_as_postgres_prints_it(version: int, case: Case, world_of: WorldOf) -> None:
    world = world_of(version)
    check(world, world.copies, case, world.copied[case.id])
    assert world.copied[case.id].treated == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_types_arrive_as_text_when_asked(version: int, world_of: WorldOf, tmp_path: Path) -> None:
    world = world_of(version)
    cases = [case for case in AS_TEXT if case.runs_on(version)]
    copied = copy_all(PostgresSource(world.url), tmp_path / "text.duckdb", cases, unknown_types="text")
    with duckdb.connect(tmp_path / "text.duckdb", read_only=True) as copies:
        for case in cases:
            check(world, copies, case, copied[case.id])


@pytest.mark.parametrize(("type_", "layout"), [("float4", ">f"), ("float8", ">d")])
def test_floats_keep_every_bit(type_: str, layout: str, world_of: WorldOf) -> None:
    world = world_of(18)
    query = f"SELECT {type_}send(value) FROM public.of_{type_} WHERE value IS NOT NULL ORDER BY id"
    sent = [bytes(row[0]) for row in world.postgres.execute(query.encode()).fetchall()]
    held = world.copies.execute(f"SELECT value FROM public.of_{type_} WHERE value IS NOT NULL ORDER BY id").fetchall()
    assert [struct.pack(layout, value) for (value,) in held] == sent


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_moments_are_the_same_microsecond(type_: str, world_of: WorldOf) -> None:
    world = world_of(18)
    finite = f"FROM public.of_{type_} WHERE isfinite(value) ORDER BY id"
    asked = world.postgres.execute(f"SELECT extract(epoch FROM value) * 1000000 {finite}".encode()).fetchall()
    # As a timestamp, a date of DuckDB would have to end in 294247.
    counted = "(value - DATE '1970-01-01') * 86400000000::HUGEINT" if type_ == "date" else "epoch_us(value)"
    assert world.copies.execute(f"SELECT {counted} {finite}").fetchall() == asked


@pytest.mark.parametrize(
    ("type_", "condition", "literals"),
    [
        ("date", "value = 'infinity'", ["infinity"]),
        ("date", "value = '-infinity'", ["-infinity"]),
        ("timestamp", "value = 'infinity'", ["infinity"]),
        ("timestamp", "value = '-infinity'", ["-infinity"]),
        ("timestamptz", "value = 'infinity'", ["infinity"]),
        ("timestamptz", "value = '-infinity'", ["-infinity"]),
        ("date", "value < '0001-01-01' AND isfinite(value)", ["4714-11-24 BC", "0044-03-15 BC", "0001-12-31 BC"]),
        ("time", "value > '23:59:59.999999'", ["24:00:00"]),
        ("float4", "isnan(value)", ["NaN"]),
        ("float8", "isnan(value)", ["NaN"]),
        ("float8", "isinf(value)", ["Infinity", "-Infinity"]),
    ],
)
def test_duckdb_itself_knows_the_special_values_it_holds(
    type_: str, condition: str, literals: list[str], world_of: WorldOf
) -> None:
    case = next(case for case in CASES if case.type == type_)
    found = world_of(18).copies.execute(f"SELECT id FROM public.{case.table} WHERE {condition} ORDER BY id").fetchall()
    assert [case.literals[row] for (row,) in found] == literals


@pytest.fixture(scope="module")
def wide_world(world_of: WorldOf) -> World:
    """With a publication `wide` of two tables that have a column for each case: one holds all values, one no row."""
    world = world_of(18)
    cases = [sql.Identifier(case.table) for case in cases_of(18)]
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(case.table), sql.SQL(case.type)) for case in cases_of(18)
    )
    for name in ("wide", "wide_and_empty"):
        world.postgres.execute(sql.SQL("CREATE TABLE {} (id int4, {})").format(sql.Identifier(name), columns))
    values = sql.SQL(", ").join(sql.SQL("(SELECT value FROM {0} WHERE {0}.id = row.id)").format(case) for case in cases)
    rows = sql.Literal(max(len(case.literals) for case in cases_of(18)))
    world.postgres.execute(
        sql.SQL("INSERT INTO wide SELECT id, {} FROM generate_series(0, {} - 1) AS row(id)").format(values, rows)
    )
    world.postgres.execute("CREATE PUBLICATION wide FOR TABLE wide, wide_and_empty")
    return world


def check_wide(world: World, path: Path, schema: TableSchema) -> None:
    """Every column of every row is as Postgres prints it; a copy without rows has the very same columns."""
    with duckdb.connect(path, read_only=True) as copies:
        described = [copies.execute(f"DESCRIBE public.{name}").fetchall() for name in ("wide", "wide_and_empty")]
        assert described[0] == described[1]
        for case in cases_of(18):
            printed = printed_by_postgres(world.postgres, TableName("public", case.table), case.printed)
            held = read_back(copies, TableName("public", "wide"), schema.column(case.table))
            assert held == printed + [None] * (len(held) - len(printed)), case.id


def read_wide(world: World) -> TableSchema:
    with connect(PostgresSource(world.url)) as connection:
        return read_schema(connection, find_table(connection, TableName("public", "wide")))


def test_all_types_side_by_side_in_one_table(wide_world: World, tmp_path: Path) -> None:
    path, source = tmp_path / "wide.duckdb", PostgresSource(wide_world.url)
    destination = started(path)
    with exported_snapshot(source, application="walrelay roundtrip") as snapshot:
        for table in ("wide", "wide_and_empty"):
            copied = copy_table(source, snapshot, table, destination)
            assert not copied.treated
    check_wide(wide_world, path, read_wide(wide_world))


@pytest.mark.spark
def test_all_types_through_spark(wide_world: World, tmp_path: Path) -> None:
    path, source = tmp_path / "spark.duckdb", PostgresSource(wide_world.url, publication="wide")
    summary = Pipeline(source, DuckDBDestination(path)).run()
    assert len(summary.tables) == 2
    assert not summary.treated
    check_wide(wide_world, path, read_wide(wide_world))


@dataclass(frozen=True)
class SpecialCase:
    """Values that DuckDB's type cannot hold, and what is there instead by policy."""

    special: str
    type: str
    literal: str
    null: str | None
    clamp: str | None


BEYOND = "294276-12-31 23:59:59.999999"
SPECIAL_CASES = (
    SpecialCase("TIMESTAMP_RANGE", "timestamp", BEYOND, None, LAST_STAMP),
    SpecialCase("TIMESTAMP_RANGE", "timestamp", "294247-01-10 04:00:54.775807", None, LAST_STAMP),
    SpecialCase("TIMESTAMP_RANGE", "timestamptz", BEYOND, None, LAST_STAMP + "+00"),
    SpecialCase("TIMESTAMP_RANGE", "timestamp[]", f'{{"{BEYOND}",NULL}}', "{NULL,NULL}", f'{{"{LAST_STAMP}",NULL}}'),
    SpecialCase("NUMERIC_NAN", "numeric(10,2)", "NaN", None, None),
    SpecialCase("NUMERIC_NAN", "numeric(38,0)", "NaN", None, None),
    SpecialCase("NUMERIC_NAN", "numeric(10,2)[]", "{1,NaN}", "{1.00,NULL}", "{1.00,NULL}"),
    SpecialCase("ARRAY_SHAPE", "int4[]", "{{1,2},{3,NULL}}", None, "{1,2,3,NULL}"),
    SpecialCase("ARRAY_SHAPE", "int4[][]", "{1,NULL}", None, "{{1,NULL}}"),
    SpecialCase("ARRAY_SHAPE", "int4[][][]", "{1,2}", None, "{{{1,2}}}"),
    SpecialCase("ARRAY_SHAPE", "text[][]", "{{{a,b},{c,d}},{{e,f},{g,NULL}}}", None, "{{a,b,c,d},{e,f,g,NULL}}"),
    SpecialCase("ARRAY_BOUNDS", "int4[]", "[0:2]={1,NULL,3}", "{1,NULL,3}", "{1,NULL,3}"),
    SpecialCase("ARRAY_BOUNDS", "int4[][]", "[-1:0][5:6]={{1,2},{3,4}}", "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
    SpecialCase(
        "INTERVAL_INFINITY", "interval", "infinity", None,
        "178956970 years 7 mons 2147483647 days 2562047788:00:54.775807",
    ),
    SpecialCase(
        "INTERVAL_INFINITY", "interval", "-infinity", None,
        "-178956970 years -8 mons -2147483648 days -2562047788:00:54.775808",
    ),
)  # fmt: skip
"""Interval infinity came with Postgres 17; these are tried on 18."""


@pytest.fixture(scope="module")
def specials(postgres18: EmbeddedPostgres) -> Iterator[str]:
    """A database with a table for each special case: the value twice, NULL, and ordinary ones where they matter."""
    url = postgres18.create_database("specials")
    with psycopg.connect(url) as connection:
        for number, case in enumerate(SPECIAL_CASES):
            connection.execute(f"CREATE TABLE special_{number} (id int4, value {case.type})".encode())
            rows = [(0, case.literal), (1, None), (2, case.literal)]
            if case.special == "ARRAY_SHAPE":
                # The shape that most values have is the column's: here it is the declared one.
                depth = case.type.count("[]")
                rows += [(3 + extra, "{" * depth + "7" + "}" * depth) for extra in range(3)]
            connection.cursor().executemany(f"INSERT INTO special_{number} VALUES (%s, %s)".encode(), rows)
    yield url


EACH_SPECIAL = [
    pytest.param(number, case, id=f"{case.special}-{case.type}-{case.literal}")
    for number, case in enumerate(SPECIAL_CASES)
]


@pytest.mark.parametrize("policy", ["null", "clamp"])
def test_special_values_are_treated_by_policy_and_counted(policy: SpecialValues, specials: str, tmp_path: Path) -> None:
    source, path = PostgresSource(specials), tmp_path / "specials.duckdb"
    destination = started(path)
    with exported_snapshot(source, application="walrelay roundtrip") as snapshot, duckdb.connect(path) as copies:
        for number, case in enumerate(SPECIAL_CASES):
            table = f"special_{number}"
            copied = copy_table(source, snapshot, table, destination, special_values=policy)
            instead = case.null if policy == "null" else case.clamp
            assert copied.treated == {case.special: 2}, case
            held = read_back(copies, TableName("public", table), copied.schema.column("value"))
            assert held[:3] == [instead, None, instead], case


@pytest.mark.parametrize(("number", "case"), EACH_SPECIAL)
def test_special_value_fails_the_table_when_the_policy_is_error(
    number: int, case: SpecialCase, specials: str, tmp_path: Path
) -> None:
    source, destination = PostgresSource(specials), started(tmp_path / "specials.duckdb")
    with (
        exported_snapshot(source, application="walrelay roundtrip") as snapshot,
        pytest.raises(SpecialValueError) as failure,
    ):
        copy_table(source, snapshot, f"special_{number}", destination, special_values="error")
    error = failure.value
    assert error.code == "value.special"
    assert error.context == {"special": case.special, "table": f"public.special_{number}", "column": "value"}
    # Nothing of the value is told, only its kind.
    assert error.message == (
        f"a value the destination's type cannot hold: {Special[case.special].value},"
        f" in column value of public.special_{number}"
    )
    with duckdb.connect(destination.path, read_only=True) as copies:
        assert not copies.execute("SELECT * FROM duckdb_tables() WHERE schema_name = 'public'").fetchall()
