"""Who is in the way of a slot is named: another reader of it, or a transaction that its creation waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.control.preflight import preflight
from walrelay.control.preflight_report import Severity
from walrelay.errors import SlotInUseError
from walrelay.model.lsn import Lsn
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres
PATIENCE = 60.0
SLOT = "wanted"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """One of our own: a transaction that is open elsewhere would hold up every slot."""
    with EmbeddedPostgres(settings={"max_prepared_transactions": "5", "shared_buffers": "32MB"}) as running:
        yield running


@pytest.fixture
def source(server: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[PostgresSource]:
    name = f"waits_{abs(hash(request.node.name)) % 10**8}"
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        yield PostgresSource(url, publication="p")
        _until(lambda: _idle(connection), "the slot is free")
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def _idle(connection: psycopg.Connection[tuple[int]]) -> bool:
    row = connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone()
    return row == (0,)


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.02)


class Running:
    """A capture in a thread."""

    def __init__(self, source: PostgresSource, log: Path, **settings: object) -> None:
        self.said: list[str] = []
        self.error: BaseException | None = None
        self.capture = Capture(
            source, slot=SLOT, log=log, settings=capture_settings(retry_delay=0.1, **settings), notify=self.said.append
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.capture.run("caught-up")
        except BaseException as error:
            self.error = error

    def heard(self, *words: str) -> bool:
        return any(all(word in said for word in words) for said in self.said)


def test_a_slot_that_is_made_names_the_prepared_transaction_it_waits_for(
    source: PostgresSource, tmp_path: Path
) -> None:
    with psycopg.connect(source.url, autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (1)")
        other.execute("PREPARE TRANSACTION 'it''s forgotten'")
        running = Running(source, tmp_path / "log")
        _until(lambda: running.heard("it's forgotten", "ROLLBACK PREPARED 'it''s forgotten'"), f"{running.said}")
        other.execute("ROLLBACK PREPARED 'it''s forgotten'")
        running.thread.join(PATIENCE)
    assert not running.thread.is_alive() and running.error is None


def test_a_capture_that_waits_for_its_slot_to_be_made_can_be_stopped_and_leaves_none(
    source: PostgresSource, tmp_path: Path
) -> None:
    with psycopg.connect(source.url, application_name="forgetful") as other:
        other.execute("INSERT INTO t VALUES (1)")
        running = Running(source, tmp_path / "log")
        _until(lambda: running.heard("forgetful", f"pg_terminate_backend({other.info.backend_pid})"), f"{running.said}")
        running.capture.stop()
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive(), "it does not end"
        with psycopg.connect(source.url) as observer:
            row = observer.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
        assert row == (0,)


def test_preflight_names_transactions_that_would_hold_up_a_slot(source: PostgresSource) -> None:
    with (
        psycopg.connect(source.url, application_name="forgetful") as other,
        psycopg.connect(source.url, autocommit=True) as prepared,
    ):
        other.execute("INSERT INTO t VALUES (1)")
        prepared.execute("BEGIN")
        prepared.execute("INSERT INTO t VALUES (2)")
        prepared.execute("PREPARE TRANSACTION 'left behind'")
        found = {one.check: one for one in preflight(source, mode="both", old=timedelta(0)).findings}
        finding = found["open_transactions"]
        assert finding.severity is Severity.WARNING and finding.remedy is not None
        assert "«left behind»" in finding.message and f"pid {other.info.backend_pid}" in finding.message
        assert "ROLLBACK PREPARED 'left behind'" in finding.remedy
        assert f"pg_terminate_backend({other.info.backend_pid})" in finding.remedy
        prepared.execute("ROLLBACK PREPARED 'left behind'")
    found = {one.check: one for one in preflight(source, mode="both", old=timedelta(hours=1)).findings}
    assert found["open_transactions"].severity is Severity.OK


def test_who_reads_a_slot_is_named_and_not_waited_for_for_ever_by_who_wants_to_be_caught_up(
    source: PostgresSource, tmp_path: Path
) -> None:
    Capture(source, slot=SLOT, log=tmp_path / "log").run("caught-up")
    with ReplicationConnection(source, application="the other reader") as other:
        row = psycopg.connect(source.url, autocommit=True).execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
        )
        other.start(SLOT, "p", _lsn(row))
        running = Running(source, tmp_path / "log", slot_timeout=1)
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive(), f"it waits for ever: {running.said[-1:]}"
        assert isinstance(running.error, SlotInUseError)
        assert "the other reader" in running.error.message
        assert f"pg_terminate_backend({other._connection.info.backend_pid})" in running.error.hint
        assert "within 1 s" in running.error.message


def _lsn(cursor: psycopg.Cursor[tuple[str]]) -> Lsn:
    row = cursor.fetchone()
    assert row is not None
    cursor.connection.close()
    return Lsn.parse(row[0])
