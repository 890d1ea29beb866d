"""What capture refuses, each by name and with the remedy: going on would lose changes, or mix two sources."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.faults.capture_kit import CaptureTask, wait_until
from tests.faults.test_capture_connection import Running
from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.errors import (
    ConfigError,
    LineageError,
    PublicationMissingError,
    PublicationYoungerError,
    RightsError,
    SlotAheadError,
    SlotLostError,
    SlotMissingError,
    SlotUnusableError,
    WalLevelError,
)
from walrelay.log.failures import LogInUseError
from walrelay.log.identity import read_lineage
from walrelay.log.reader import LogReader
from walrelay.postgres import replication
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.slot import Slot, check_usable
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR TABLE items")


def insert(url: str, *items: int) -> None:
    """Committed, and flushed, which the shared server leaves out by default."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        for item in items:
            connection.execute("INSERT INTO items VALUES (%s)", (item,))


def run(url: str, log: Path, slot: str, *, publication: str = "p", **settings: object) -> Capture:
    """Capture all there is."""
    source = PostgresSource(url, publication=publication)
    capture = Capture(source, slot=slot, log=log, settings=capture_settings(retry_delay=0.05, **settings))
    capture.run("caught-up")
    return capture


def captured(log: Path) -> list[int]:
    return [change.row["id"] for change in LogReader(log).changes() if change.row is not None]


@pytest.fixture
def source(database: str) -> str:
    prepare(database)
    return database


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    """A name of our own; whatever slot has it, or one that begins with it, is dropped at the end."""
    name = f"refused_{database.rpartition('_')[2]}"
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        like = (f"{name}%",)
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE %s", like
        )
        active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE %s AND active"
        wait_until(lambda: connection.execute(active, like).fetchone() == (0,), "the slot is free")
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE %s", like
        )


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server whose settings tests may change."""
    with EmbeddedPostgres(settings={"shared_buffers": "32MB", "restore_command": "false"}) as server:
        yield server


@pytest.fixture
def own(own_server: EmbeddedPostgres, request: pytest.FixtureRequest) -> str:
    url = own_server.create_database(request.node.name[-40:])
    prepare(url)
    return url


def set_for_a_while(url: str, name: str, value: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
        look = "SELECT current_setting(%s) = %s"
        wait_until(lambda: connection.execute(look, (name, value)).fetchone() == (True,), "the setting is there")


# ------------------------------------------------------------------------------------------- the slot's position


def test_a_slot_that_was_advanced_past_the_log(source: str, slot: str, tmp_path: Path) -> None:
    run(source, tmp_path / "log", slot)
    insert(source, 1)
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (slot,))
    with pytest.raises(SlotAheadError) as caught:
        run(source, tmp_path / "log", slot)
    assert slot in str(caught.value) and "another --log" in caught.value.hint
    assert caught.value.context["held"] == str(LogReader(tmp_path / "log").head())


def test_a_log_restored_from_an_older_copy(source: str, slot: str, tmp_path: Path) -> None:
    run(source, tmp_path / "log", slot)
    insert(source, 1)
    run(source, tmp_path / "log", slot)
    shutil.copytree(tmp_path / "log", tmp_path / "older")
    insert(source, 2)
    run(source, tmp_path / "log", slot)
    with pytest.raises(SlotAheadError, match="in neither"):
        run(source, tmp_path / "older", slot)
    assert captured(tmp_path / "older") == [1] and captured(tmp_path / "log") == [1, 2]


# ------------------------------------------------------------------------------------------------ the slot itself


def test_a_slot_that_was_dropped(source: str, slot: str, tmp_path: Path) -> None:
    run(source, tmp_path / "log", slot)
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    with pytest.raises(SlotMissingError, match=slot) as caught:
        run(source, tmp_path / "log", slot)
    assert "copies the tables again" in caught.value.hint


def test_a_slot_whose_wal_is_gone(own: str, tmp_path: Path) -> None:
    run(own, tmp_path / "log", "outgrown")
    set_for_a_while(own, "max_slot_wal_keep_size", "1MB")
    with psycopg.connect(own, autocommit=True) as connection:
        for number in range(4):
            connection.execute("INSERT INTO items VALUES (%s)", (number,))
            connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")
    set_for_a_while(own, "max_slot_wal_keep_size", "-1")
    with pytest.raises(SlotLostError, match="wal removed") as caught:
        run(own, tmp_path / "log", "outgrown")
    assert "max_slot_wal_keep_size" in caught.value.hint
    assert "begins with another --slot and another --log" in caught.value.hint
    run(own, tmp_path / "another", "another")
    insert(own, 9)
    run(own, tmp_path / "another", "another")
    assert captured(tmp_path / "another") == [9]


def test_a_slot_that_was_idle_for_too_long(own: str, tmp_path: Path) -> None:
    run(own, tmp_path / "log", "idle")
    set_for_a_while(own, "idle_replication_slot_timeout", "1s")
    reason = "SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = 'idle'"
    with psycopg.connect(own, autocommit=True) as connection:

        def invalidated() -> bool:
            connection.execute("CHECKPOINT")
            return connection.execute(reason).fetchone() == ("idle_timeout",)

        wait_until(invalidated, "the slot is invalidated")
    set_for_a_while(own, "idle_replication_slot_timeout", "0")
    with pytest.raises(SlotLostError, match="idle timeout") as caught:
        run(own, tmp_path / "log", "idle")
    assert "idle_replication_slot_timeout" in caught.value.hint


def test_a_slot_in_use_is_named_and_waited_for(source: str, slot: str, tmp_path: Path) -> None:
    """A predecessor that crashed may linger on the server for a while."""
    run(source, tmp_path / "log", slot)
    insert(source, 1)
    said: list[str] = []
    capture = Capture(
        PostgresSource(source, publication="p"),
        slot=slot,
        log=tmp_path / "log",
        settings=capture_settings(retry_delay=0.05),
        notify=said.append,
    )
    thread = threading.Thread(target=capture.run, args=("caught-up",), daemon=True)
    with ReplicationConnection(PostgresSource(source, publication="p")) as other:
        other.start(slot, "p", LogReader(tmp_path / "log").head())
        with psycopg.connect(source, autocommit=True) as connection:
            look = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active"
            wait_until(lambda: connection.execute(look, (slot,)).fetchone() is not None, "the other has the slot")
            row = connection.execute(look, (slot,)).fetchone()
        assert row is not None
        thread.start()
        wait_until(lambda: len(said) > 1, "it tries more than once")
        assert f"in use by the server process {row[0]}" in said[0]
        assert capture.status().state == "waiting" and capture.status().last_error == "source.slot_in_use"
    thread.join(30)
    assert not thread.is_alive() and captured(tmp_path / "log") == [1]


def test_a_slot_made_for_two_phase_commit(source: str, slot: str, tmp_path: Path) -> None:
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", (slot,))
    with pytest.raises(SlotUnusableError, match="two-phase") as caught:
        run(source, tmp_path / "log", slot)
    assert "make its own slot" in caught.value.hint
    assert not (tmp_path / "log" / "log.json").exists()


def test_a_slot_of_another_kind(source: str, slot: str, tmp_path: Path) -> None:
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s)", (slot,))
    with pytest.raises(SlotUnusableError, match="physical") as caught:
        run(source, tmp_path / "log", slot)
    assert "another name" in caught.value.hint


def test_a_slot_of_another_database(source: str, slot: str, postgres18: EmbeddedPostgres, tmp_path: Path) -> None:
    with psycopg.connect(postgres18.url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    with pytest.raises(SlotUnusableError, match="belongs to database postgres"):
        run(source, tmp_path / "log", slot)


def test_every_reason_for_which_a_slot_is_useless() -> None:
    good = Slot("s", "pgoutput", "logical", "shop", None, None, None, "reserved", False, False, None, 0, 0)
    check_usable(good, "shop")
    for reason in ("wal_removed", "rows_removed", "wal_level_insufficient", "idle_timeout", "recovery conflict"):
        with pytest.raises(SlotLostError, match=reason.replace("_", " ")):
            check_usable(dataclasses.replace(good, invalidation=reason), "shop")
    with pytest.raises(SlotLostError, match="WAL that it needs is gone"):
        check_usable(dataclasses.replace(good, wal_status="lost"), "shop")
    with pytest.raises(SlotUnusableError, match="plugin wal2json"):
        check_usable(dataclasses.replace(good, plugin="wal2json"), "shop")


@pytest.mark.parametrize("name", ["Upper", "with-dash", "", "x" * 64, "two\nlines"])
def test_a_name_that_no_slot_can_have(source: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not a name for a replication slot") as caught:
        run(source, tmp_path / "log", name)
    assert "lower-case" in caught.value.hint
    assert not (tmp_path / "log").exists()


# ------------------------------------------------------------------------------------------------------- lineage


def test_a_log_of_another_slot(source: str, slot: str, tmp_path: Path) -> None:
    run(source, tmp_path / "log", slot)
    with pytest.raises(LineageError, match=f"belongs to the slot {slot}, not to {slot}_2") as caught:
        run(source, tmp_path / "log", f"{slot}_2")
    assert f"--slot {slot}," in caught.value.hint


def test_another_server_with_a_slot_of_the_same_name(source: str, slot: str, own: str, tmp_path: Path) -> None:
    run(source, tmp_path / "log", slot)
    run(own, tmp_path / "other", slot)
    with pytest.raises(LineageError, match="the log came from the server") as caught:
        run(own, tmp_path / "log", slot)
    assert "another --log" in caught.value.hint


def test_a_promoted_server_is_refused_until_its_timeline_is_accepted(
    own_server: EmbeddedPostgres, own: str, tmp_path: Path
) -> None:
    """Recovery that ends begins a new timeline, as a promotion does."""
    run(own, tmp_path / "log", "promoted")
    insert(own, 1)
    own_server.stop()
    signal_file = own_server.log_path.parent / "data" / "recovery.signal"
    signal_file.touch()
    owner = signal_file.parent.stat()
    os.chown(signal_file, owner.st_uid, owner.st_gid)
    own_server.start()
    with psycopg.connect(own, autocommit=True) as connection:
        recovering = "SELECT pg_is_in_recovery()"
        wait_until(lambda: connection.execute(recovering).fetchone() == (False,), "recovery has ended")
    before = read_lineage(LogReader(tmp_path / "log").storage)
    assert before is not None
    now = before.timeline + 1
    with pytest.raises(LineageError, match=f"on timeline {now} now") as caught:
        run(own, tmp_path / "log", "promoted")
    assert f"--accept-timeline {now}" in caught.value.hint
    with pytest.raises(LineageError):
        run(own, tmp_path / "log", "promoted", accept_timeline=now + 1)
    run(own, tmp_path / "log", "promoted", accept_timeline=now)
    assert captured(tmp_path / "log") == [1]
    run(own, tmp_path / "log", "promoted")
    after = read_lineage(LogReader(tmp_path / "log").storage)
    assert after == dataclasses.replace(before, timeline=now)


# -------------------------------------------------------------------------------------------- publication, rights


def test_a_publication_that_is_not_there(source: str, slot: str, tmp_path: Path) -> None:
    with pytest.raises(PublicationMissingError, match="no such publication: q") as caught:
        run(source, tmp_path / "log", slot, publication="q")
    assert "This database has: p." in caught.value.hint and "CREATE PUBLICATION q" in caught.value.hint
    with psycopg.connect(source) as connection:
        row = connection.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", (slot,)).fetchone()
    assert row == (0,), "no slot is made that nobody would read"


@pytest.mark.parametrize("transport", ["socket", "libpq"])
@pytest.mark.parametrize("change", ["DROP PUBLICATION p", "ALTER PUBLICATION p RENAME TO q"])
def test_a_publication_that_goes_away_while_capture_runs(
    source: str, slot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str, change: str
) -> None:
    """Postgres 18 only warns, and leaves out every change from there on. The log must not claim to hold them."""
    if transport == "libpq":  # as with TLS
        monkeypatch.setattr(replication, "_Socket", replication._Libpq)
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute(
            "ALTER ROLE postgres IN DATABASE " + connection.info.dbname + " SET client_min_messages = error"
        )
    task = CaptureTask(PostgresSource(source, publication="p"), slot, tmp_path / "log")
    capture = Running(task)
    with pytest.raises(PublicationYoungerError) as caught, capture.running():
        wait_until(lambda: capture.capture.status().state == "streaming" or capture.error is not None, "it streams")
        insert(source, 1)
        reader = LogReader(task.log)
        wait_until(lambda: captured(task.log) == [1], "the first change is there")
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(change)
        insert(source, 2)
        with psycopg.connect(source, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        wait_until(lambda: capture.error is not None, "it ends")
    assert "begins with another --slot and another --log" in caught.value.hint
    assert row is not None and str(reader.head()) != row[0]
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("DROP PUBLICATION IF EXISTS q")
        connection.execute("DROP PUBLICATION IF EXISTS p")
        connection.execute("CREATE PUBLICATION p FOR TABLE items")
    with pytest.raises(PublicationYoungerError):
        run(source, tmp_path / "log", slot)
    assert captured(task.log) == [1]
    run(source, tmp_path / "another", f"{slot}_2")
    insert(source, 3)
    run(source, tmp_path / "another", f"{slot}_2")
    assert captured(tmp_path / "another") == [3]


def test_a_role_that_may_not_replicate(source: str, slot: str, tmp_path: Path) -> None:
    role = f"{slot}_role"
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(RightsError, match="may not replicate") as caught:
            run(source.replace("postgres@", f"{role}@"), tmp_path / "log", slot)
        assert "ALTER ROLE" in caught.value.hint and "REPLICATION" in caught.value.hint
    finally:
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {role}")


def test_a_server_without_logical_wal(tmp_path: Path) -> None:
    with EmbeddedPostgres(settings={"wal_level": "replica", "shared_buffers": "32MB"}) as server:
        prepare(server.url)
        with pytest.raises(WalLevelError) as caught:
            run(server.url, tmp_path / "log", "replica")
    assert "wal_level = 'logical'" in caught.value.hint


# ---------------------------------------------------------------------------------------------------------- lease


def test_a_second_capture_on_the_same_log(source: str, slot: str, tmp_path: Path) -> None:
    task = CaptureTask(PostgresSource(source, publication="p"), slot, tmp_path / "log")
    first = task.start()
    wait_until((task.log / "log.json").exists, "the first one runs")
    with pytest.raises(LogInUseError, match=f"process {first.pid} on ") as caught:
        run(source, task.log, slot)
    assert "capture of slot" in str(caught.value) and "another log directory" in caught.value.hint
    first.kill()
    first.join()
    run(source, task.log, slot)
