"""Names of columns, attributes and tables do not get in the way of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.roundtrip.copying import copy_table, started
from walrelay.errors import NameClashError
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres


def copy(url: str, table: str, path: Path) -> None:
    source = PostgresSource(url)
    with exported_snapshot(source, application="walrelay roundtrip") as snapshot:
        destination = started(path)
        try:
            copy_table(source, snapshot, table, destination)
        finally:
            destination.shutdown()


def execute(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def ask(path: Path, query: str) -> list[Any]:
    with duckdb.connect(path, read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_columns_may_be_called_what_duckdb_calls_its_own(database: str, tmp_path: Path) -> None:
    """Its virtual columns, the table function, the variables of our lambdas, and a directory read as a partition."""
    directory = tmp_path / "region=7" / "note=directory"
    directory.mkdir(parents=True)
    names = ("rowid", "filename", "file_row_number", "region", "note", "landed", "select", "a.b", 'a"b', "É", "é")
    columns = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" text' for name in names)
    execute(
        database,
        f"CREATE TYPE span AS (region interval, note interval[]);"
        f"CREATE TABLE odd ({columns}, x0 interval[], read_parquet span, landed_0 span[]);"
        f"INSERT INTO odd VALUES ({', '.join(str(place) for place in range(len(names)))}, '{{1 day}}',"
        f""" '("2 days",{{3 days}})', '{{"(\\"4 days\\",)"}}')""",
    )
    copy(database, "odd", directory / "names.duckdb")
    (row,) = ask(
        directory / "names.duckdb",
        "SELECT * REPLACE (x0::VARCHAR AS x0, read_parquet::VARCHAR AS read_parquet, landed_0::VARCHAR AS landed_0)"
        " FROM public.odd",
    )
    assert row == (
        *(str(place) for place in range(len(names))),
        "[1 day]",
        "{'region': 2 days, 'note': [3 days]}",
        "[{'region': 4 days, 'note': NULL}]",
    )


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            'CREATE TABLE twins ("Value" text, value text)',
            "public.twins has columns that DuckDB cannot tell apart: Value",
        ),
        (
            'CREATE TYPE two AS ("A" int4, a int4); CREATE TABLE twins (value two[])',
            "the type two has attributes that DuckDB cannot tell apart: A, a",
        ),
        (
            'CREATE TABLE "Twins" (id int4); CREATE TABLE twins (id int4)',
            'DuckDB cannot tell public.twins from public."Twins"',
        ),
    ],
    ids=["columns", "attributes", "tables"],
)
def test_names_that_duckdb_takes_for_one_are_refused(statements: str, said: str, database: str, tmp_path: Path) -> None:
    path = tmp_path / "twins.duckdb"
    execute(database, statements)
    if '"Twins"' in statements:
        copy(database, '"Twins"', path)
    with pytest.raises(NameClashError, match="cannot tell") as failure:
        copy(database, "twins", path)
    assert said in failure.value.message
    assert failure.value.hint


def test_a_table_may_change_the_case_of_its_name(database: str, tmp_path: Path) -> None:
    path = tmp_path / "renamed.duckdb"
    execute(database, 'CREATE TABLE "Renamed" AS SELECT 1 AS id')
    copy(database, '"Renamed"', path)
    execute(database, 'ALTER TABLE "Renamed" RENAME TO renamed; UPDATE renamed SET id = 2')
    copy(database, "renamed", path)
    assert ask(path, "SELECT id FROM public.renamed") == [(2,)]


def test_a_table_without_columns_becomes_a_table(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES; INSERT INTO bare DEFAULT VALUES")
    copy(database, "bare", tmp_path / "bare.duckdb")
    assert ask(tmp_path / "bare.duckdb", "SELECT count(*) FROM public.bare") == [(2,)]
