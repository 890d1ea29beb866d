"""Every hint about settings, files and states is followed as it is written, and then it works (SEMANTICS 26)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import requires
from pathlib import Path

import duckdb
import pytest

from tests.hint_kit import refused, walrelay
from walrelay.changes.rows import TableRows
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.destinations.staging import staging_area
from walrelay.destinations.urls import destination_from_url
from walrelay.log.identity import claim
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import DataSync, Init
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.spark.session import check_java
from walrelay.stores.sqlite import SqliteStore

LINEAGE = Lineage("slot", "7", 1, Lsn(1))

HOLD = """
import sys, time
from contextlib import ExitStack
kind, where = sys.argv[1:]
with ExitStack() as stack:
    if kind == "duckdb":
        import duckdb
        stack.enter_context(duckdb.connect(where))
    elif kind == "pipeline":
        from walrelay.stores.sqlite import SqliteStore
        stack.enter_context(SqliteStore(where, "shop").acquire_pipeline_lock())
    else:
        import sqlite3
        sqlite3.connect(where, isolation_level=None).execute("BEGIN EXCLUSIVE")
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_program(kind: str, where: Path) -> Iterator[subprocess.Popen[str]]:
    """That holds a DuckDB file, an SQLite file, or a pipeline."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, kind, str(where)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def open_file(path: Path) -> None:
    """As a run begins with its destination."""
    destination = DuckDBDestination(path)
    destination.startup(DestinationContext("shop", copy_settings(busy_timeout=0.2)))
    destination.shutdown()


def is_pipeline(state: Path) -> SqliteStore:
    """A state directory in which the pipeline `shop` has a table."""
    state.mkdir(exist_ok=True)
    store = SqliteStore(state / "state.sqlite", "shop")
    store.update_table_replication_state(7, Init())
    store.store_table_mapping(7, "public.orders")
    return store


# ----------------------------------------------------------------------------------------------------------- settings


def test_settings(tmp_path: Path) -> None:
    is_pipeline(tmp_path).close()
    with refused("config.invalid") as told:
        walrelay("resync", "--state", tmp_path)
    for command in told.hint.split(", or "):
        assert walrelay(*command.split()[1:], "--state", tmp_path)
    with refused("config.invalid") as told:
        walrelay("status", "--state", tmp_path, "--id", "other")
    assert "It has: shop." in told.hint
    with refused("config.invalid") as told:
        copy_settings(max_tables=0)
    (command,) = told.commands()
    assert "--max-tables" in walrelay(*command.split()[1:])


def test_destinations_of_an_unknown_kind() -> None:
    with refused("config.unknown_destination") as told:
        destination_from_url("ftp://x")
    urls = re.findall(r"\w+:[\w/.]*\w|\w+:", told.hint)
    assert len(urls) == 6
    for url in urls:
        destination_from_url(url)


def test_a_package_that_is_not_installed() -> None:
    """The program of somebody who has no DuckDB; the extra that the hint names brings it."""
    script = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from walrelay.destinations.duckdb.file import duckdb_module\n"
        "from walrelay.errors import WalrelayError\n"
        "try: duckdb_module()\n"
        "except WalrelayError as error: print(error.to_text())"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    with refused("config.missing_extra") as told:
        raise RuntimeError(said)
    extra = re.fullmatch(r"pip install 'walrelay\[(\w+)\]'", told.hint)
    assert extra is not None
    assert any(
        one.startswith("duckdb") and f'"{extra[1]}"' in one.replace("'", '"') for one in requires("walrelay") or ()
    )


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = shutil.which("java", path=os.environ.get("JAVA_HOME", "") + "/bin") or shutil.which("java")
    assert java is not None
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path))
        with refused("spark.no_jdk") as told:
            check_java()
        assert "or set JAVA_HOME" in told.hint
        patch.setenv("JAVA_HOME", str(Path(java).resolve().parents[1]))
        check_java()


# ------------------------------------------------------------------------------------------------------- destinations


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "not" / "here" / "out.duckdb"
    with refused("destination.not_writable") as told:
        open_file(path)
    subprocess.run(told.hint.split(), check=True)
    open_file(path)


def test_a_file_that_another_program_has_open(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    with another_program("duckdb", path) as other:
        with refused("destination.busy") as told:
            open_file(path)
        assert f"process {other.pid}" in told.message and "Close the other program" in told.hint
    open_file(path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    path.write_text("this is no database " * 1000)
    with refused("destination.unreadable") as told:
        open_file(path)
    assert "Choose another path, or move the file away" in told.hint
    open_file(tmp_path / "another.duckdb")
    path.rename(tmp_path / "away")
    open_file(path)


def keep(path: Path, source_id: str, pipeline: str | None = None) -> None:
    """A run of `pipeline`, or one that copies only, which brings the table public.orders of the source."""
    schema = TableSchema(7, TableName("public", "orders"), (Column("id", PgType(23, "int4"), attnum=1),), ("id",))
    destination = DuckDBDestination(path)
    destination.startup(
        DestinationContext(
            "shop",
            copy_settings(),
            mode="copy" if pipeline is None else "both",
            source_id=source_id,
            source_name=source_id,
            pipeline_name=pipeline,
            tables={schema.id: schema.name},
        )
    )
    try:
        destination.drop_table_for_copy(schema)
        destination.write_table_rows(schema, TableRows(schema, (), DUCKDB, 0, Lsn(1), None))
    finally:
        destination.shutdown()


def test_a_table_of_another_source_then_of_another_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    keep(path, "one server")
    with refused("destination.other_source") as told:
        keep(path, "another server", "shop-1")
    assert "Choose another file" in told.hint
    keep(tmp_path / "another.duckdb", "another server", "shop-1")
    with duckdb.connect(str(path)) as file:
        file.execute(told.statement())
    keep(path, "another server", "shop-1")
    with refused("destination.other_pipeline") as told:
        keep(path, "another server")
    with duckdb.connect(str(path)) as file:
        file.execute(told.statement())
    keep(path, "another server")


def test_staging_where_nobody_may_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        refused("staging.not_writable") as told,
        staging_area(tmp_path / "file" / "s", timeout=timedelta(0), notify=print),
    ):
        pass
    assert "--staging DIR" in told.hint
    with staging_area(tmp_path / "elsewhere", timeout=timedelta(0), notify=print) as area:
        assert area.is_dir()


# ---------------------------------------------------------------------------------------------------------------- log


def test_a_log_that_cannot_be_written_is_not_there_or_is_anothers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("log.not_writable") as told:
        claim(open_storage(str(tmp_path / "file" / "log")), LINEAGE)
    assert "Check that the log's directory or bucket exists" in told.hint
    log = tmp_path / "log"
    claim(open_storage(str(log)), LINEAGE)
    with refused("log.not_found") as told:
        walrelay("replay", tmp_path / "lgo")
    assert "Give the directory that `walrelay capture --log` writes to" in told.hint
    walrelay("replay", log)
    another = Lineage("another", "7", 1, Lsn(1))
    with refused("log.other_lineage") as told:
        claim(open_storage(str(log)), another)
    assert "Choose another log directory" in told.hint
    claim(open_storage(str(tmp_path / "another")), another)


def test_a_damaged_file_of_the_log_is_restored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    claim(open_storage(str(log)), LINEAGE)
    shutil.copytree(log, tmp_path / "backup")
    (log / "log.json").write_text("{")
    with refused("log.damaged") as told:
        LogReader(log).lineage()
    assert told.hint.startswith("Restore the named file from a backup")
    named = next(word for word in told.message.split() if word.startswith(str(log)))
    shutil.copy(tmp_path / "backup" / Path(named).relative_to(log), named)
    assert LogReader(log).lineage() == LINEAGE


# -------------------------------------------------------------------------------------------------------------- store


def test_a_store_in_a_place_that_cannot_hold_one(tmp_path: Path) -> None:
    with refused("store.not_found") as told:
        SqliteStore(tmp_path / "missing" / "state.sqlite", "shop")
    assert told.hint == "Make the directory first."
    (tmp_path / "missing").mkdir()
    SqliteStore(tmp_path / "missing" / "state.sqlite", "shop").close()
    with refused("store.not_writable") as told:
        SqliteStore(tmp_path, "shop")
    assert told.hint == "Give the path of a file."
    (tmp_path / "text").write_text("this is text, and quite a lot of it\n" * 100)
    with refused("store.damaged") as told:
        SqliteStore(tmp_path / "text", "shop")
    assert "or move it away and run again" in told.hint
    (tmp_path / "text").rename(tmp_path / "away")
    SqliteStore(tmp_path / "text", "shop").close()


def test_a_store_whose_file_another_program_holds(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store = SqliteStore(path, "shop", busy_timeout=timedelta(milliseconds=50))
    with another_program("sqlite", path):
        with refused("store.busy") as told:
            store.update_table_replication_state(1, Init())
        assert "end it, or wait" in told.hint
    store.update_table_replication_state(1, Init())


def test_a_pipeline_that_another_process_runs(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with another_program("pipeline", path) as other:
        with refused("store.in_use") as told, SqliteStore(path, "shop").acquire_pipeline_lock(patience=0):
            pass
        assert f"process {other.pid}" in told.message
        assert "Stop the other process, or give this pipeline another id" in told.hint
        with SqliteStore(path, "another").acquire_pipeline_lock(patience=0):
            pass
    with SqliteStore(path, "shop").acquire_pipeline_lock():
        pass


# ----------------------------------------------------------------------------------------------------------- commands


def test_a_state_and_a_table_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("pipeline.no_state") as told:
        walrelay("pause", "--state", "nothing")
    directory = re.search(r"by default ([\w-]+)", told.hint)
    assert directory is not None
    store = is_pipeline(tmp_path / directory[1])
    walrelay("pause")
    with refused("pipeline.no_such_table") as told:
        walrelay("resync", "ordres")
    known = re.fullmatch(r"It has: (.*)\.", told.hint)
    assert known is not None
    assert "public.orders is copied again" in walrelay("resync", known[1])
    store.close()


def test_a_table_that_cannot_go_further_back(tmp_path: Path) -> None:
    is_pipeline(tmp_path).close()
    with refused("store.no_earlier_phase") as told:
        walrelay("rollback", "public.orders", "--state", tmp_path)
    (command,) = told.commands()
    asked = json.loads(walrelay(*command.split()[1:], "public.orders", "--state", tmp_path, "--json"))
    assert [one["table"] for one in asked] == ["public.orders"]


def test_a_reader_that_is_not_there_and_one_that_reads(tmp_path: Path) -> None:
    store = is_pipeline(tmp_path)
    store.update_table_replication_state(7, DataSync())
    store.close()
    log = tmp_path / "log"
    claim(open_storage(str(log)), LINEAGE)
    positions = ReaderPositions(open_storage(str(log)))
    positions.record("shop", Lsn(5))
    with refused("pipeline.no_such_reader") as told:
        walrelay("forget-reader", "shpo", "--state", tmp_path)
    known = re.fullmatch(r"It has: (.*)\.", told.hint)
    assert known is not None
    with another_program("pipeline", tmp_path / "state.sqlite"):
        with refused("pipeline.reader_in_use") as told:
            walrelay("forget-reader", known[1], "--state", tmp_path)
        assert "Stop the pipeline first" in told.hint
    assert "is forgotten" in walrelay("forget-reader", known[1], "--state", tmp_path)
