"""A standby as the source: its snapshots name no running transaction, so that copies are cut by what was replayed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.server_kit import standby_of, wait_for
from tests.spark.live_kit import Live
from tests.spark.test_handover import Schedules
from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.failpoints import armed
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.workers import live as live_module

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
TABLES = 12
CLIENTS = 4


class Pair:
    """A primary, and a pipeline that reads its standby."""

    def __init__(self, primary: EmbeddedPostgres, standby: EmbeddedPostgres, directory: Path, spark: SparkSession):
        self.primary = primary
        self.standby = standby
        self.live = Live(standby.url, directory, spark)

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def follow(self) -> None:
        """Wait until the standby has all that the primary has."""
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
            end = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        with psycopg.connect(self.standby.url, autocommit=True) as connection:
            replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            wait_for(lambda: connection.execute(replayed, end).fetchone() == (True,), "the standby has followed")

    def make_slot(self) -> None:
        """A slot on a standby waits until the primary says which transactions run."""
        settings = capture_settings(retry_delay=0.05)
        capture = Capture(self.live.source, slot=self.live.slot, log=self.live.log, settings=settings)
        thread = threading.Thread(target=capture.run, args=("caught-up",), daemon=True)
        thread.start()

        def made() -> bool:
            self.sql("SELECT pg_log_standby_snapshot()")
            thread.join(0.1)
            return not thread.is_alive()

        wait_for(made, "the slot is made")
        assert (self.live.log / "log.json").exists()


@pytest.fixture(params=[16, 18])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 0.1)
    with ExitStack() as stack:
        primary = stack.enter_context(EmbeddedPostgres(version=request.param, settings={"shared_buffers": "64MB"}))
        standby = stack.enter_context(standby_of(primary))
        pair = Pair(primary, standby, tmp_path, spark)
        stack.callback(pair.live.close)
        yield pair


def test_a_transaction_that_is_open_during_the_copy_arrives(pair: Pair) -> None:
    pair.sql(
        "CREATE TABLE keyed (id int PRIMARY KEY, note text)",
        "CREATE TABLE loose (id int)",
        "INSERT INTO keyed SELECT g, 'n' FROM generate_series(1, 100) g",
        "INSERT INTO loose SELECT generate_series(1, 100)",
        "CREATE PUBLICATION p FOR TABLE keyed, loose",
    )
    pair.follow()
    pair.make_slot()
    with psycopg.connect(pair.primary.url) as straddling:
        straddling.execute("INSERT INTO keyed VALUES (1000, 'late')")
        straddling.execute("SAVEPOINT s")
        straddling.execute("INSERT INTO loose VALUES (1000)")
        straddling.execute("UPDATE keyed SET note = 'late' WHERE id = 7")
        pair.sql("INSERT INTO keyed VALUES (2000, 'early')", "INSERT INTO loose VALUES (2000)")
        pair.follow()
        with pair.live.running() as pipeline:
            pair.live.wait_ready(pipeline, "public.keyed", "public.loose")
            straddling.commit()
            pair.sql("INSERT INTO loose VALUES (3000)")
            pair.follow()
            pair.live.wait_current(pipeline)
            assert_replicated(pair.live.source, pair.live.file)


def test_tables_without_a_key_get_every_row_once_under_load(pair: Pair) -> None:
    tables = [f"t{number}" for number in range(TABLES)]
    pair.sql(*(f"CREATE TABLE {name} (n int)" for name in tables), "CREATE PUBLICATION p FOR ALL TABLES")
    pair.follow()
    pair.make_slot()
    stop = threading.Event()
    clients = [Schedules(pair.primary.url, number, tables[number::CLIENTS], stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    settings = copy_settings(max_tables=4, retry_delay=0.05, retries=8)
    with armed("copy.during=sleep:0.15,catchup.before=sleep:0.15"), pair.live.running(settings=settings) as pipeline:
        try:
            pair.live.wait_ready(pipeline)
        finally:
            stop.set()
            for client in clients:
                client.join()
        assert [client.failure for client in clients if client.failure] == []
        pair.follow()
        pair.live.wait_current(pipeline)
        assert_replicated(pair.live.source, pair.live.file)
