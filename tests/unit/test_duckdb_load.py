"""A copy that is loaded in pieces: all of it or nothing, and the file is free in between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from time import sleep

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from walrelay.changes.rows import LandedFile, TableRows
from walrelay.config.settings import copy_settings
from walrelay.decode.table import bare_rows
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import pieces as duckdb_pieces
from walrelay.destinations.duckdb.destination import SMALL_BYTES, DuckDBDestination
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.destinations.duckdb.load import BUILDING
from walrelay.destinations.duckdb.pieces import cut
from walrelay.destinations.landing import BARE, GROUP_ROWS, Landing, landable
from walrelay.errors import DestinationError, WalrelayError
from walrelay.failpoints import disarm
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.testing.failpoints import armed

SCHEMA = TableSchema(
    7, TableName("public", "Orders"), (Column("id", PgType(23, "int4")), Column("note", PgType(25, "text")))
)


def landed(directory: Path, *counts: int, first: int = 0, schema: TableSchema = SCHEMA, padding: int = 0) -> TableRows:
    """Files with so many rows each, numbered on, with texts at least as long as told."""
    files: list[LandedFile] = []
    for count in counts:
        names = [column.name for column in schema.columns]
        numbers = pa.array(range(first, first + count), pa.int32())
        texts = pc.utf8_lpad(numbers.cast(pa.string()), padding)
        columns = [numbers, texts][: len(names)]
        batch = pa.RecordBatch.from_arrays(columns, names)
        landing = Landing(str(directory), batch.schema, file_bytes=2**30)
        landing.write(batch)
        files += landing.files()
        first += count
    return TableRows(schema, tuple(files), DUCKDB, sum(counts))


def held(path: Path) -> list[int]:
    with duckdb.connect(str(path), read_only=True) as reader:
        assert not reader.sql(f"FROM duckdb_tables() WHERE starts_with(table_name, '{BUILDING}')").fetchall()
        return [row[0] for row in reader.sql('SELECT id FROM public."Orders" ORDER BY id').fetchall()]


@pytest.fixture
def stopping() -> Event:
    return Event()


@pytest.fixture
def destination(tmp_path: Path, stopping: Event) -> Iterator[DuckDBDestination]:
    made = DuckDBDestination(tmp_path / "out.duckdb", piece_bytes=10_000)
    made.startup(DestinationContext("test", copy_settings(), stopping=stopping))
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    disarm()


def test_a_sliced_copy_leaves_no_row_group_half_full_but_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_pieces, "PIECE_BYTES", 1)
    made = DuckDBDestination(tmp_path / "out.duckdb", threads=2)
    made.startup(DestinationContext("id", copy_settings()))
    rows = landed(tmp_path, 17 * GROUP_ROWS + 7)
    assert made._plan(SCHEMA, rows).pieces == 2
    made.write_table_rows(SCHEMA, rows)
    made.shutdown()
    assert row_groups(made.path) == [7, *[GROUP_ROWS] * 17]


def row_groups(path: Path) -> list[int]:
    with duckdb.connect(str(path), read_only=True) as reader:
        found = reader.sql(
            "SELECT max(start + count) FROM pragma_storage_info('public.\"Orders\"')"
            " WHERE column_name = 'id' AND segment_type = 'INTEGER' GROUP BY row_group_id"
        ).fetchall()
    return sorted(count for (count,) in found)


@pytest.mark.parametrize("others_wait", [True, False])
def test_wide_rows_come_in_at_the_same_time_and_fill_row_groups_across_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_wait: bool
) -> None:
    monkeypatch.setattr(duckdb_pieces, "PIECE_BYTES", 1)
    made = DuckDBDestination(tmp_path / "out.duckdb", threads=2)
    made.startup(DestinationContext("id", copy_settings(), others_wait=others_wait))
    counts = (50_000, 2 * GROUP_ROWS, 1_000, GROUP_ROWS)
    rows = landed(tmp_path, *counts, padding=600)
    steps = made._plan(SCHEMA, rows)
    assert [[piece.rows for piece in one] for one in steps.rounds] == [[GROUP_ROWS] * 2, [GROUP_ROWS + 51_000]]
    made.write_table_rows(SCHEMA, rows)
    made.shutdown()
    assert held(made.path) == list(range(sum(counts)))
    assert row_groups(made.path) == [51_000, *[GROUP_ROWS] * 3]


def test_changes_of_others_come_in_while_a_piece_is_loaded(destination: DuckDBDestination, tmp_path: Path) -> None:
    other = TableSchema(8, TableName("public", "other"), SCHEMA.columns)
    rows = landed(tmp_path, 10, schema=other)
    with destination._file.beside(in_order=True) as ((connection,), catalog), ThreadPoolExecutor() as threads:
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE {catalog}.main.long AS SELECT 1 AS n")
        assert threads.submit(destination.write_table_rows, other, rows).result(timeout=20).rows == 10
        assert threads.submit(destination.applied_lsn, 8).result(timeout=20) is None
        connection.execute("COMMIT")
    with duckdb.connect(str(destination.path), read_only=True) as reader:
        assert reader.sql("SELECT (SELECT n FROM long), (SELECT count(*) FROM public.other)").fetchall() == [(1, 10)]


def test_a_piece_that_fails_leaves_the_file_to_others(destination: DuckDBDestination, tmp_path: Path) -> None:
    with pytest.raises(DestinationError), destination._file.beside(in_order=True) as ((connection,), _):
        connection.execute("SELECT error('no')")
    assert destination.write_table_rows(SCHEMA, landed(tmp_path, 10)).rows == 10
    assert held(destination.path) == list(range(10))


def test_a_long_statement_is_given_up_when_the_pipeline_stops(
    destination: DuckDBDestination, stopping: Event, tmp_path: Path
) -> None:
    Timer(0.5, stopping.set).start()
    with pytest.raises(DestinationError), destination._file.beside(in_order=True) as ((connection,), _):
        connection.execute("SELECT sum(a.range * b.range) FROM range(10_000_000) a, range(10_000_000) b")
    destination.write_table_rows(SCHEMA, landed(tmp_path, 10))
    assert held(destination.path) == list(range(10))


def test_closing_waits_for_a_piece(destination: DuckDBDestination) -> None:
    with ThreadPoolExecutor() as threads:
        with destination._file.beside(in_order=True) as ((connection,), catalog):
            closing = threads.submit(destination._file.close)
            sleep(0.2)
            connection.execute(f"CREATE TABLE {catalog}.main.long AS SELECT 1 AS n")
        closing.result(timeout=20)
    with duckdb.connect(str(destination.path)) as reader:
        assert reader.sql("SELECT n FROM long").fetchall() == [(1,)]


@pytest.mark.parametrize(("weight", "waited"), [(SMALL_BYTES // 2, False), (2 * SMALL_BYTES, True)])
def test_only_what_is_small_keeps_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weight: int, waited: bool
) -> None:
    made = DuckDBDestination(tmp_path / "out.duckdb")
    made.startup(DestinationContext("id", copy_settings()))
    beside = []
    monkeypatch.setattr(made, "_write_beside", lambda *given: beside.append(given) or 0)
    rows = landed(tmp_path, 10)
    (file,) = rows.files
    made.write_table_rows(SCHEMA, replace(rows, files=(replace(file, bytes=weight),)))
    assert bool(beside) is waited
    made.shutdown()


def test_a_table_without_columns_has_all_its_rows(destination: DuckDBDestination, tmp_path: Path) -> None:
    """Also when they come in pieces."""
    schema = TableSchema(7, TableName("public", "bare"), ())
    landing = Landing(str(tmp_path), BARE, file_bytes=1 << 30)
    landing.write(landable(bare_rows(5_000)))
    rows = TableRows(schema, tuple(landing.files()), DUCKDB, 5_000)
    assert len(destination._plan(schema, rows).rounds) > 1
    assert destination.write_table_rows(schema, rows).rows == 5_000
    with duckdb.connect(str(destination.path), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM public.bare").fetchall() == [(5_000,)]
    assert rows.arrow().num_rows == len(list(rows.rows())) == 5_000


def test_pieces_and_slices_make_the_whole_table(destination: DuckDBDestination, tmp_path: Path) -> None:
    rows = landed(tmp_path, 40, 5_000, 3, 60, 70)
    assert len(cut(SCHEMA, rows.files, 10_000)) > 20
    assert destination.write_table_rows(SCHEMA, rows).rows == 5_173
    assert held(destination.path) == list(range(5_173))


def test_a_failure_between_two_pieces_leaves_the_old_table(destination: DuckDBDestination, tmp_path: Path) -> None:
    destination.write_table_rows(SCHEMA, landed(tmp_path, 5))
    with armed("destination.piece=fail:1"):
        with pytest.raises(WalrelayError, match=r"destination\.piece"):
            destination.write_table_rows(SCHEMA, landed(tmp_path, 500, 500, first=100))
        assert held(destination.path) == list(range(5))
        destination.write_table_rows(SCHEMA, landed(tmp_path, 500, 500, first=100))
    assert held(destination.path) == list(range(100, 1_100))


READER = """
import duckdb, sys
print(duckdb.connect(sys.argv[1], read_only=True).sql('SELECT count(*) FROM public."Orders"').fetchall()[0][0])
"""


def test_between_two_pieces_others_have_the_file(
    destination: DuckDBDestination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination.write_table_rows(SCHEMA, landed(tmp_path, 5))
    seen: list[str] = []

    def look(name: str) -> None:
        if name == "destination.piece":
            seen.append(subprocess.check_output([sys.executable, "-c", READER, str(destination.path)], text=True))

    monkeypatch.setattr("walrelay.destinations.duckdb.destination.hit", look)
    destination.write_table_rows(SCHEMA, landed(tmp_path, 100, 100, 100, first=100))
    assert seen == ["5\n", "5\n", "5\n"]
    assert held(destination.path) == list(range(100, 400))


def unfinished(path: Path) -> list[str]:
    with duckdb.connect(str(path), read_only=True) as reader:
        rows = reader.sql(
            f"SELECT table_name FROM duckdb_tables() WHERE starts_with(table_name, '{BUILDING}')"
        ).fetchall()
    return [name for (name,) in rows]


def test_a_copy_that_was_killed_leaves_nothing_for_the_next_run(destination: DuckDBDestination, tmp_path: Path) -> None:
    rows = landed(tmp_path, 500, 500)
    destination.shutdown()
    code = f"""
from tests.unit.test_duckdb_load import *
from walrelay.failpoints import arm
arm("destination.piece=kill")
made = DuckDBDestination({str(destination.path)!r}, piece_bytes=10_000)
made.startup(DestinationContext("it's me", copy_settings()))
made.write_table_rows(SCHEMA, TableRows(SCHEMA, {rows.files!r}, DUCKDB, 1_000))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert len(unfinished(destination.path)) == 1
    destination.startup(DestinationContext("another", copy_settings()))
    destination.shutdown()
    assert len(unfinished(destination.path)) == 1, "it may be at work"
    destination.startup(DestinationContext("it's me", copy_settings()))
    assert unfinished(destination.path) == []


def test_a_stop_gives_a_long_load_up(destination: DuckDBDestination, tmp_path: Path, stopping: Event) -> None:
    destination.write_table_rows(SCHEMA, landed(tmp_path, 5))
    stopping.set()
    with pytest.raises(DestinationError, match="stopped while"):
        destination.write_table_rows(SCHEMA, landed(tmp_path, 500, 500, first=100))
    assert held(destination.path) == list(range(5))


def test_a_piece_that_lacks_rows_is_noticed(destination: DuckDBDestination, tmp_path: Path) -> None:
    rows = landed(tmp_path, 500, 500)
    short = TableRows(SCHEMA, rows.files, DUCKDB, 1_001)
    with pytest.raises(DestinationError, match="took 1000 of 1001 rows"):
        destination.write_table_rows(SCHEMA, short)
    with duckdb.connect(str(destination.path), read_only=True) as reader:
        assert not reader.sql("FROM duckdb_tables() WHERE schema_name = 'public'").fetchall()
