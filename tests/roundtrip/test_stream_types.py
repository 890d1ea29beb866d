"""Every type, at its edges: inserted, captured, read back from the log; it is what a copy gives and Postgres prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from tests.roundtrip.compare import printed_by_postgres, read_back
from tests.roundtrip.streaming import copied, same, streamed_database
from tests.roundtrip.test_types import SPECIAL_CASES
from tests.roundtrip.values import EXTENSIONS, TYPES, Case, cases_of
from walrelay.destinations.duckdb.dialect import projection
from walrelay.model.names import TableName
from walrelay.model.schema import Column
from walrelay.model.special import SpecialValues
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

VERSIONS = (14, 16, 18)


def streamed_cases(version: int) -> list[Case]:
    return [case for case in cases_of(version) if not case.altered and case.type not in REFUSED_BY_SERVER]


REFUSED_BY_SERVER = ("aclitem[]", "holds_acl")
"""Types that have a binary output function, but parts that have none: pgoutput asks the first only, and then fails."""
EACH_CASE = [
    pytest.param(version, case, id=f"{version}-{case.id}") for version in VERSIONS for case in streamed_cases(version)
]


@dataclass(frozen=True)
class Held:
    """One case, on all roads."""

    printed: list[str | None]
    copy_column: Column
    copy: pa.Table
    log_column: Column
    inserted: pa.Table
    deleted: pa.Table


@dataclass(frozen=True)
class World:
    """A server's tables, one a case, all captured."""

    cases: dict[str, Held]
    special_values: dict[str, dict[str, int]]
    duckdb: Any


WorldOf = Callable[[int], World]


def fill(connection: psycopg.Connection, cases: list[Case]) -> None:
    with connection.pipeline():
        for case in cases:
            with connection.transaction():
                insert = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier(case.table))
                connection.cursor().executemany(insert, list(enumerate(case.literals)))


def make_types(connection: psycopg.Connection, version: int) -> None:
    for extension in (*EXTENSIONS, "vector") if version == 18 else EXTENSIONS:
        connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    connection.execute(TYPES.encode())


@contextmanager
def captured_world(server: EmbeddedPostgres, directory: Path) -> Iterator[World]:
    """Insert and capture; delete, under REPLICA IDENTITY FULL, and capture again."""
    cases = streamed_cases(server.version)
    with streamed_database(server, directory) as streamed, duckdb.connect() as memory:
        make_types(streamed.connection, server.version)
        for case in cases:
            streamed.run(
                f"CREATE TABLE {case.table} (id int4 PRIMARY KEY, value {case.type});"
                f"ALTER TABLE {case.table} REPLICA IDENTITY FULL"
            )
        streamed.run("CREATE PUBLICATION p FOR ALL TABLES")
        streamed.begin()
        fill(streamed.connection, cases)
        streamed.capture()
        special_values = streamed.special_values
        names = {case.id: TableName("public", case.table) for case in cases}
        printed = {case.id: printed_by_postgres(streamed.connection, names[case.id], case.printed) for case in cases}
        with connect(PostgresSource(streamed.url), application="walrelay roundtrip") as connection:
            copies = {case.id: copied(connection, case.table) for case in cases}
        streamed.run(*(f"DELETE FROM {case.table}" for case in cases))
        streamed.capture()
        tables, rows, olds = streamed.reader.tables(), streamed.images("row"), streamed.images("old")
        held = {
            id_: Held(
                printed[id_], copies[id_][0].column("value"), copies[id_][1],
                tables[name].schema.column("value"), rows[name], olds[name],
            )
            for id_, name in names.items()
        }  # fmt: skip
        yield World(held, special_values, memory)


@pytest.fixture(scope="module")
def world_of(
    postgres_server: Callable[[int], EmbeddedPostgres], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorldOf]:
    """Gives what was captured from a version of Postgres. Made once, when first asked for, also if that fails."""
    made: dict[int, World | None] = {}
    with ExitStack() as worlds:

        def world(version: int) -> World:
            if version not in made:
                made[version] = None
                capturing = captured_world(postgres_server(version), tmp_path_factory.mktemp("logs"))
                made[version] = worlds.enter_context(capturing)
            found = made[version]
            assert found is not None, f"capturing from Postgres {version} failed in an earlier test"
            return found

        yield world


def in_words_of_postgres(world: World, case: Case, directory: Path) -> list[str | None]:
    """What the log holds, by way of Parquet and DuckDB as in the copy's tests."""
    held, path = world.cases[case.id], directory / "rows.parquet"
    pq.write_table(held.inserted.rename_columns(["id", "landed"]), path)
    world.duckdb.execute(
        f"CREATE OR REPLACE TABLE main.{case.table} AS"
        f" SELECT id, {projection(held.log_column, 'landed')} AS value FROM read_parquet('{path}')"
    )
    return read_back(world.duckdb, TableName("main", case.table), held.log_column)


@pytest.mark.parametrize(("version", "case"), EACH_CASE)
def test_streamed_value_is_what_a_copy_gives_and_what_postgres_prints(
    version: int, case: Case, world_of: WorldOf, tmp_path: Path
) -> None:
    world = world_of(version)
    held = world.cases[case.id]
    assert held.log_column == held.copy_column
    assert len(held.inserted) == len(case.literals)
    assert same(held.inserted, held.copy)
    assert same(held.deleted, held.copy), "as old images have it"
    assert in_words_of_postgres(world, case, tmp_path) == held.printed


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_these_is_a_special_value_for_the_log(version: int, world_of: WorldOf) -> None:
    assert world_of(version).special_values == {}


@pytest.mark.parametrize("policy", ["null", "clamp"])
def test_special_values_are_treated_as_the_copy_treats_them(
    policy: SpecialValues, postgres18: EmbeddedPostgres, tmp_path: Path
) -> None:
    with streamed_database(postgres18, tmp_path) as streamed:
        for number, case in enumerate(SPECIAL_CASES):
            streamed.run(f"CREATE TABLE special_{number} (id int4 PRIMARY KEY, value {case.type})")
        streamed.run("CREATE PUBLICATION p FOR ALL TABLES")
        streamed.begin()
        for number, case in enumerate(SPECIAL_CASES):
            values = [case.literal, None, case.literal]
            if case.special == "ARRAY_SHAPE":
                depth = case.type.count("[]")
                values += ["{" * depth + "7" + "}" * depth] * 3
            insert = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier(f"special_{number}"))
            streamed.connection.cursor().executemany(insert, list(enumerate(values)))
        streamed.capture(special_values=policy)
        rows = streamed.images("row")
        with connect(PostgresSource(streamed.url), application="walrelay roundtrip") as connection:
            for number, case in enumerate(SPECIAL_CASES):
                name = TableName("public", f"special_{number}")
                _, copy, tally = copied(connection, name.name, policy)
                assert same(rows[name], copy), case
                treated = {special.name: count for special, count in tally.counts.items()}
                assert streamed.special_values.get(str(name), {}) == treated, case
                # Arrow holds infinite intervals as they are, DuckDB does not.
                assert treated == ({} if case.special == "INTERVAL_INFINITY" else {case.special: 2}), case
