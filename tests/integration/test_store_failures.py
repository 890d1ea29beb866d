"""What goes wrong with a SQL store has a name, tells no secret, and leaves memory and database as they were."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy.engine import RootTransaction
from sqlalchemy.exc import OperationalError

from walrelay.errors import ConfigError
from walrelay.model.lsn import Lsn
from walrelay.model.phases import DataSync, Init, Ready, SyncWait
from walrelay.model.progress import Apply
from walrelay.stores.base import PipelineStore
from walrelay.stores.failures import (
    StoreBusyError,
    StoreDamagedError,
    StoreInUseError,
    StoreNotFoundError,
    StoreNotWritableError,
    StoreUnreachableError,
)
from walrelay.stores.postgres import PostgresStore
from walrelay.stores.sqlite import SqliteStore, lock_path
from walrelay.testing.store_contract import LINEAGE

SECRET = "s3cr3t-pass"

HOLD = """
import sys, time
from walrelay.stores.postgres import PostgresStore
from walrelay.stores.sqlite import SqliteStore
where = sys.argv[1]
with (PostgresStore if "://" in where else SqliteStore)(where, "orders").acquire_pipeline_lock():
    print("held", flush=True)
    time.sleep(600)
"""

HOLD_AND_FORK = """
import os, sys, time
from walrelay.stores.sqlite import SqliteStore
with SqliteStore(sys.argv[1], "orders").acquire_pipeline_lock():
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, path: Path) -> str:
    return str(path) if request.param == "sqlite" else str(request.getfixturevalue("database"))


def opened(where: str) -> PipelineStore:
    return (PostgresStore if "://" in where else SqliteStore)(where, "orders")


@pytest.fixture
def holder(where: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, where], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


# -------------------------------------------------------------------------------------------------------- the lock


def test_another_process_is_told_who_runs_the_pipeline_and_gets_it_when_that_one_is_killed(
    where: str, holder: subprocess.Popen[str]
) -> None:
    with closing(opened(where)) as store:
        with (
            pytest.raises(StoreInUseError, match=f"orders is being run by .*process {holder.pid} on .*, since 20"),
            store.acquire_pipeline_lock(),
        ):
            pass
        holder.kill()
        holder.wait()
        _eventually(lambda: _locks(store))


def test_a_lock_whose_file_was_removed_is_lost(path: Path) -> None:
    store = SqliteStore(path, "orders")
    with store.acquire_pipeline_lock() as lock:
        lock_path(path, "orders").unlink()
        with pytest.raises(StoreInUseError, match="removed or replaced"):
            lock.check()


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(path: Path) -> None:
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", HOLD_AND_FORK, path], stdin=pipe, stdout=pipe, text=True)
    assert parent.stdout is not None and parent.stdin is not None and parent.stdout.readline() == "forked\n"
    store = SqliteStore(path, "orders")
    assert not _locks(store)
    parent.kill()
    parent.wait()
    assert _locks(store)
    parent.communicate()  # ends the child


@pytest.mark.postgres
def test_a_lock_whose_connection_was_ended_is_lost(database: str) -> None:
    with closing(PostgresStore(database, "orders")) as store, store.acquire_pipeline_lock() as lock:
        lock.check()
        _end_sessions(database, "walrelay process %")
        with pytest.raises(StoreInUseError, match="the lock of the pipeline orders is lost"):
            lock.check()
        with store.acquire_pipeline_lock():
            pass


# ------------------------------------------------------------------------------------- memory follows the database


def test_a_write_that_fails_changes_neither_memory_nor_the_file(path: Path) -> None:
    store = SqliteStore(path, "orders", busy_timeout=timedelta(milliseconds=50))
    store.update_table_replication_states({1: Init(), 2: SyncWait()})
    store.get_table_replication_states()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreBusyError, match=r"state\.db is locked by another program") as caught:
            store.update_table_replication_states({1: Ready(), 2: Ready(), 3: SyncWait()})
        assert caught.value.retryable
        assert store.get_table_replication_states() == {1: Init(), 2: SyncWait()}
        other.execute("ROLLBACK")
    assert store.load_table_replication_states() == 1
    store.update_table_replication_state(1, Ready())
    assert store.get_table_replication_state(1) == Ready()


def test_a_commit_whose_answer_is_lost_is_looked_up(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(where)) as store:
        store.update_table_replication_state(1, Init())
        assert store.get_table_replication_state(1) == Init()
        commit = RootTransaction.commit

        def lose_the_answer(transaction: RootTransaction) -> None:
            commit(transaction)
            raise OperationalError("COMMIT", None, psycopg.OperationalError("the connection is lost"))

        with monkeypatch.context() as patch:
            patch.setattr(RootTransaction, "commit", lose_the_answer)
            with pytest.raises(Exception, match="the store"):
                store.update_table_replication_state(1, DataSync())
        assert store.get_table_replication_state(1) == DataSync()


def test_what_another_process_wrote_is_not_overwritten_unseen(where: str) -> None:
    with closing(opened(where)) as running, closing(opened(where)) as command:
        for phase in (Init(), DataSync(), Ready()):
            running.update_table_replication_state(1, phase)
        assert command.rollback_table_replication_state(1) == DataSync()
        assert running.rollback_table_replication_state(1) == Init()
        running.update_durable_progress(Apply(), LINEAGE, Lsn(5))
        assert command.update_durable_progress(Apply(), LINEAGE, Lsn(4)) == Lsn(5)
        found = command.get_durable_progress(Apply())
        assert found is not None and found.lsn == 5


def test_writers_through_two_connections_wait_for_each_other(where: str) -> None:
    def write(store: PipelineStore, first: int) -> None:
        for lsn in range(first, first + 30, 2):
            assert store.update_durable_progress(Apply(), LINEAGE, Lsn(lsn)) >= lsn
            store.update_table_replication_states({1: Init(), 2: Init()} if first else {2: Ready(), 1: Ready()})

    with closing(opened(where)) as one, closing(opened(where)) as two, ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (one, two), (0, 1)))
        found = one.get_durable_progress(Apply())
        assert found is not None and found.lsn == 29
        one.load_table_replication_states()
        assert set(one.get_table_replication_states().values()) in ({Init()}, {Ready()})


@pytest.mark.postgres
def test_a_store_outlives_a_restart_of_its_server(database: str) -> None:
    with closing(PostgresStore(database, "orders")) as store:
        store.update_table_replication_state(1, Init())
        _end_sessions(database, "walrelay store")
        store.update_table_replication_state(1, DataSync())
        assert store.rollback_table_replication_state(1) == Init()


# --------------------------------------------------------------------------------------------------- named failures


def test_damage_is_named_with_its_table(where: str) -> None:
    with closing(opened(where)) as store:
        store.update_table_replication_state(17, Init())
    _execute(where, "UPDATE {}table_phases SET phase = 'no json'")
    with closing(opened(where)) as store:
        for read in (store.load_table_replication_states, store.get_table_replication_states):
            with pytest.raises(StoreDamagedError, match="the phase of table 17 is damaged"):
                read()
        with pytest.raises(StoreDamagedError, match="the phase of table 17 is damaged"):
            store.update_table_replication_state(17, Ready())


def test_a_store_that_lost_a_table_is_damaged(where: str) -> None:
    opened(where).close()
    _execute(where, "DROP TABLE {}table_phases")
    with closing(opened(where)) as store, pytest.raises(StoreDamagedError, match="does not hold what it should"):
        store.load_table_replication_states()


def test_a_pipeline_that_was_removed_is_not_written_to(where: str) -> None:
    with closing(opened(where)) as store:
        _execute(where, "DELETE FROM {}pipelines")
        with pytest.raises(StoreDamagedError, match="no longer knows the pipeline orders"):
            store.update_table_replication_state(1, Init())


def test_places_that_cannot_hold_a_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotWritableError, match="is a directory"):
        SqliteStore(tmp_path, "orders")
    with pytest.raises(StoreNotFoundError, match="there is no directory"):
        SqliteStore(tmp_path / "missing" / "state.db", "orders")
    (tmp_path / "text").write_text("this is text, and quite a lot of it\n" * 100)
    with pytest.raises(StoreDamagedError, match="is no SQLite database"):
        SqliteStore(tmp_path / "text", "orders")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE customers (id int)")
    with pytest.raises(StoreDamagedError, match="another program"):
        SqliteStore(tmp_path / "foreign.db", "orders")


def test_a_file_that_is_gone_is_not_made_anew(path: Path) -> None:
    store = SqliteStore(path, "orders")
    path.unlink()
    with pytest.raises(StoreNotFoundError, match="does not exist, or no longer"):
        store.update_table_replication_state(1, Init())
    assert not path.exists()


@pytest.mark.postgres
def test_a_role_needs_rights_on_the_tables_only_once_they_are_there(database: str) -> None:
    role = f"role_{os.getpid()}"
    poor = database.replace("//postgres", f"//{role}")
    assert poor != database
    _execute(database, f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(StoreNotWritableError, match="does not allow it"):
            PostgresStore(poor, "orders")
        PostgresStore(database, "orders").close()
        with pytest.raises(StoreNotWritableError, match="does not allow it"):
            PostgresStore(poor, "shop")
        _execute(database, f"GRANT USAGE ON SCHEMA walrelay TO {role}")
        _execute(database, f"GRANT ALL ON ALL TABLES IN SCHEMA walrelay TO {role}")
        with closing(PostgresStore(poor, "shop")) as store:
            store.update_table_replication_state(1, Init())
            assert store.load_table_replication_states() == 1
    finally:
        _execute(database, f"DROP OWNED BY {role}")
        _execute(database, f"DROP ROLE {role}")


@pytest.mark.postgres
def test_a_database_that_is_not_there_is_named(database: str) -> None:
    missing = database.rsplit("/", 1)[0] + "/no_such_database"
    with pytest.raises(StoreNotFoundError, match="no_such_database"):
        PostgresStore(missing, "orders")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db?connect_timeout=2", StoreUnreachableError),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db?unheard_of=1", ConfigError),
        (f"postgresql://me:{SECRET}@x@127.0.0.1/db", ConfigError),
        ("", ConfigError),
    ],
    ids=["unreachable", "parameter", "unescaped", "empty"],
)
def test_the_password_is_never_told(url: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        PostgresStore(url, "orders")
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in told and quote(SECRET) not in told
    assert "store" in str(caught.value)


def _locks(store: PipelineStore) -> bool:
    try:
        with store.acquire_pipeline_lock():
            return True
    except StoreInUseError:
        return False


def _eventually(condition: Callable[[], bool]) -> None:
    """The server notices a dead client on its own time."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _execute(where: str, statement: str) -> None:
    if "://" in where:
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.format("walrelay."))  # type: ignore[arg-type]
    else:
        with closing(sqlite3.connect(where, isolation_level=None)) as file:
            file.execute(statement.format(""))


def _end_sessions(url: str, application: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s"
            " AND datname = current_database()",
            [application],
        ).fetchall()
    assert ended
