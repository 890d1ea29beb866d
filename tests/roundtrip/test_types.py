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
from tests.roundtrip.values import AS_TEXT, CASES, EXTENSIONS, TYPES, UNKNOWN, Case, cases_of
from walrelay.config.settings import UnknownTypes
from walrelay.decode.table import duckdb_column_type
from walrelay.destinations.base import TableRows
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.errors import SpecialValueError
from walrelay.model.names import TableName
from walrelay.model.special import SpecialValues
from walrelay.pipeline import Pipeline
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

VERSIONS = (14, 16, 18)
EACH_CASE = [pytest.param(version, case, id=f"{version}-{case.id}") for version in VERSIONS for case in cases_of(version)]


@dataclass
class World:
    """A server's tables, one a case, and their copies in DuckDB."""

    version: int
    url: str
    postgres: psycopg.Connection
    copies: Any
    copied: dict[str, Copied] = field(default_factory=dict)


def fill(connection: psycopg.Connection, version: int) -> None:
    """Make all types, a table for each case with its values, and a publication of all."""
    extensions = (*EXTENSIONS, "vector") if version == 18 else EXTENSIONS
    for extension in extensions:
        connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    connection.execute(TYPES.encode())
    cases = cases_of(version)
    for case in cases:
        connection.execute(f"CREATE TABLE {case.table} (id int4 PRIMARY KEY, value {case.type})".encode())
        with connection.cursor().copy(f"COPY {case.table} FROM STDIN".encode()) as copy:
            for row in enumerate(case.literals):
                copy.write_row(row)
        if case.altered:
            connection.execute(case.altered.encode())
    tables = sql.SQL(", ").join(sql.Identifier(case.table) for case in cases)
    connection.execute(sql.SQL("CREATE PUBLICATION everything FOR TABLE {}").format(tables))


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
            case.id: pool.submit(
                copy_table, source, snapshot, case.table, destination, unknown_types=unknown_types
            )
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
) -> Iterator[Callable[[int], World]]:
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


def test_each_case_has_a_table_of_its_own() -> None:
    assert len({case.table for case in CASES}) == len(CASES)


@pytest.mark.parametrize(("version", "case"), EACH_CASE)
def test_value_reads_back_as_postgres_prints_it(version: int, case: Case, world_of: Callable[[int], World]) -> None:
    world = world_of(version)
    copied, table = world.copied[case.id], TableName("public", case.table)

    assert copied.rows == len(case.literals)
    assert copied.treated == {}
    assert world.copies.execute(f"SELECT typeof(NULL::{case.duckdb})").fetchone() == (
        str(column_type(world.copies, table, "value")),
    )
    assert read_back(world.copies, table, copied.schema.column("value")) == printed_by_postgres(
        world.postgres, table, case.printed
    )
