"""What walrelay writes on its own holds rows and positions: nobody but its user may read it, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.landing import Landing
from walrelay.destinations.staging import staging_area
from walrelay.log.storage import open_storage
from walrelay.postgres.source import PostgresSource
from walrelay.stores.sqlite import SqliteStore

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> dict[str, str]:
    """What others may do with `root` and all that is in it."""
    found = {str(path.relative_to(root.parent)): path.lstat().st_mode for path in [root, *root.rglob("*")]}
    assert len(found) > 1, "nothing was written"
    return {path: stat.filemode(mode) for path, mode in found.items() if mode & 0o077}


def test_a_log_with_spilled_transactions_and_all_that_capture_writes(database: str, tmp_path: Path) -> None:
    slot = f"modes_{uuid4().hex[:8]}"
    source = PostgresSource(database, publication="p")
    settings = capture_settings(memory_bytes=1024 * 1024)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, filler text)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        Capture(source, slot=slot, log=tmp_path / "deep" / "log", settings=settings).run("caught-up")
        connection.execute("SET synchronous_commit = on")
        connection.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g")
        Capture(source, slot=slot, log=tmp_path / "deep" / "log", settings=settings).run("caught-up")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    assert open_to_others(tmp_path / "deep") == {}


def test_a_store_and_its_locks(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    store = SqliteStore(state / "state.sqlite", "mine")
    with store.acquire_pipeline_lock():
        assert open_to_others(state) == {}
    store.close()


def test_a_store_that_was_there_keeps_the_mode_its_owner_gave_it(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "state.sqlite", "mine").close()
    (tmp_path / "state.sqlite").chmod(0o640)
    SqliteStore(tmp_path / "state.sqlite", "mine").close()
    assert stat.S_IMODE((tmp_path / "state.sqlite").stat().st_mode) == 0o640


def test_copies_that_land(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})
    with staging_area(tmp_path / "staging", timeout=timedelta(0), notify=print) as area:
        landing = Landing(str(area), rows.schema, file_bytes=1 << 20)
        landing.write(rows)
        assert [file.rows for file in landing.files()] == [3]
        assert open_to_others(area) == {}


def test_a_directory_that_was_there_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    open_storage(shared).put("data/one", b"1")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750
    assert stat.S_IMODE((shared / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((shared / "data" / "one").stat().st_mode) == 0o600


def test_a_duckdb_file_is_left_to_the_umask(tmp_path: Path) -> None:
    """It is the user's, and others may be meant to read it."""
    destination = DuckDBDestination(tmp_path / "copy.duckdb")
    destination.startup(DestinationContext("modes", copy_settings()))
    destination.shutdown()
    assert stat.S_IMODE((tmp_path / "copy.duckdb").stat().st_mode) & 0o044 == 0o044, "the umask of this test is 0"
