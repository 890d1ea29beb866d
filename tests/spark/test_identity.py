"""State, log and destination belong together: a wrong pairing is refused by name before anything is changed
(SEMANTICS 27)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from tests.spark.live_kit import Live
from walrelay.cli.app import main
from walrelay.config.settings import copy_settings
from walrelay.control.readers import forget_reader
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.errors import (
    CopyFailedError,
    DestinationBusyError,
    ReaderInUseError,
    ReaderMissingError,
    WalrelayError,
)
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import open_storage
from walrelay.model.lsn import Lsn
from walrelay.model.phases import Errored
from walrelay.pipeline import Pipeline
from walrelay.stores.failures import StoreInUseError
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def other(live: Live, postgres18: EmbeddedPostgres, tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    """Another database, with a state and a log of its own, and the same file."""
    name = f"test_{uuid4().hex[:12]}"
    directory = tmp_path / "other"
    directory.mkdir()
    made = Live(postgres18.create_database(name), directory, spark)
    made.file = live.file
    yield made
    made.close()
    with psycopg.connect(postgres18.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def twin(live: Live, tmp_path: Path, spark: SparkSession) -> Iterator[Live]:
    """The same database and file, with a state and a log of its own."""
    directory = tmp_path / "twin"
    directory.mkdir()
    made = Live(live.url, directory, spark)
    made.file = live.file
    yield made
    made.close()


def make(live: Live, table: str = "items", rows: int = 10) -> None:
    live.sql(
        f"CREATE TABLE {table} (id int PRIMARY KEY, n int)",
        f"INSERT INTO {table} SELECT g, g FROM generate_series(1, {rows}) AS g",
        f"CREATE PUBLICATION p FOR TABLE {table}",
    )


def query(file: Path, question: str) -> list[Any]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(question).fetchall()


def refusal(pipeline: Pipeline) -> WalrelayError:
    """What the run is refused with, also when it is said of a table."""
    with pytest.raises(WalrelayError) as caught:
        pipeline.run(until="caught-up")
    error = caught.value
    return error.__cause__ if isinstance(error, CopyFailedError) and error.__cause__ else error  # type: ignore[return-value]


def copy_once(live: Live, **more: Any) -> Pipeline:
    return live.pipeline(mode="copy", store=None, log=None, slot=None, **more)


# ------------------------------------------------------------------------------------------------- two with defaults


def test_two_pipelines_of_one_publication_get_slots_of_their_own(live: Live, twin: Live, tmp_path: Path) -> None:
    make(live)
    twin.file = tmp_path / "twin.duckdb"
    for one in (live, twin):
        one.pipeline(slot=None).run(until="caught-up")
    assert any("keeps" in notice and "slots drop" in notice for notice in twin.heard.notices), twin.heard.notices
    live.sql("INSERT INTO items VALUES (11, 11)")
    for one in (twin, live):
        one.pipeline(slot=None).run(until="caught-up")
        assert query(one.file, "SELECT count(*) FROM public.items") == [(11,)]
    # What one does about a lost log does not take the other's slot away.
    live.log.rename(tmp_path / "lost")
    live.sql("DELETE FROM items")
    for one in (live, twin):
        one.pipeline(slot=None, begin_anew=one is live).run(until="caught-up")
        assert query(one.file, "SELECT count(*) FROM public.items") == [(0,)]
    live.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'walrelay_p_%'")


# ------------------------------------------------------------------------------------------------------ two sources


def test_two_sources_do_not_take_turns_with_one_table(live: Live, other: Live) -> None:
    make(live, rows=10)
    make(other, rows=3)
    live.pipeline().run(until="caught-up")
    before = query(live.file, "FROM _walrelay.tables")
    for pipeline in (other.pipeline(), copy_once(other)):
        error = refusal(pipeline)
        assert error.code == "destination.other_source"
        assert "public.items" in error.message
        assert live.source.location in error.message and other.source.location in error.message
    with psycopg.connect(other.url) as connection:
        slots = connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (other.slot,)).fetchall()
    assert slots == [] and not other.log.exists(), "nothing was made before it was refused"
    assert query(live.file, "FROM _walrelay.tables") == before
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    live.pipeline().run(until="caught-up")
    assert_replicated(live.source, live.file)


def test_two_sources_with_tables_of_other_names_share_a_file(live: Live, postgres_server: Any, tmp_path: Path) -> None:
    """Of two servers, so that the oids of their tables are the same ones."""
    with EmbeddedPostgres() as first, EmbeddedPostgres() as second:
        both = []
        for number, server in enumerate((first, second)):
            directory = tmp_path / str(number)
            directory.mkdir()
            one = Live(server.create_database("shop"), directory, live._spark)
            one.file = live.file
            make(one, f"items_{number}", rows=10 + number)
            both.append(one)
        for round_ in range(2):
            for number, one in enumerate(both):
                one.sql(f"UPDATE items_{number} SET n = {round_} WHERE id = {round_ + 1}")
                one.pipeline().run(until="caught-up")
                assert len(one.heard.started) == (round_ == 0)
        assert query(live.file, "SELECT count(DISTINCT source_oid) FROM _walrelay.tables") == [(1,)]
        for one in both:
            assert_replicated(one.source, one.file)


def test_a_table_renamed_to_the_name_of_another_sources_table_fails_alone(live: Live, other: Live) -> None:
    make(live, "items")
    make(other, "things", rows=3)
    other.sql("CREATE TABLE more (id int PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE more")
    live.pipeline().run(until="caught-up")
    other.pipeline().run(until="caught-up")
    other.sql(
        "ALTER TABLE things RENAME TO items", "INSERT INTO items VALUES (100, 100)", "INSERT INTO more VALUES (1)"
    )
    with pytest.raises(CopyFailedError):
        other.pipeline().run(until="caught-up")
    (failed,) = [one for one in other.store().get_table_replication_states().values() if isinstance(one, Errored)]
    assert live.source.location in failed.reason and "another file" in (failed.solution or "")
    assert query(live.file, "FROM public.more") == [(1,)]
    live.pipeline().run(until="caught-up")
    assert_replicated(live.source, live.file)


def test_a_file_of_an_earlier_version_is_taken_over(live: Live, other: Live) -> None:
    make(live)
    make(other)
    live.pipeline().run(until="caught-up")
    live.store().store_fact(0, "destination", None)
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("DROP TABLE IF EXISTS _walrelay.file; DROP TABLE IF EXISTS _walrelay.sources")
        for table in ("progress", "shapes"):
            for column in ("source_id", "pipeline"):
                connection.execute(f"ALTER TABLE _walrelay.{table} DROP COLUMN IF EXISTS {column}")
        connection.execute(
            "CREATE TABLE _walrelay.earlier AS SELECT schema_name, table_name, source_oid, primary_key, column_types,"
            " row_count, snapshot_lsn, copied_at FROM _walrelay.tables; DROP TABLE _walrelay.tables;"
            " CREATE TABLE _walrelay.tables (schema_name VARCHAR, table_name VARCHAR, source_oid BIGINT,"
            " primary_key VARCHAR[], column_types VARCHAR[], row_count BIGINT, snapshot_lsn VARCHAR,"
            " copied_at TIMESTAMP WITH TIME ZONE, PRIMARY KEY (schema_name, table_name));"
            " INSERT INTO _walrelay.tables FROM _walrelay.earlier; DROP TABLE _walrelay.earlier"
        )
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    live.pipeline().run(until="caught-up")
    assert live.heard.started == [] and live.heard.notices == []
    assert_replicated(live.source, live.file)
    assert refusal(other.pipeline()).code == "destination.other_source"


def test_a_role_without_rights_can_tell_which_source_it_is(live: Live) -> None:
    make(live)
    live.sql("CREATE ROLE plain LOGIN PASSWORD 'secret'", "GRANT SELECT ON items TO plain")
    try:
        from walrelay.postgres.connection import connect
        from walrelay.postgres.identity import source_id
        from walrelay.postgres.source import PostgresSource

        as_plain = PostgresSource(psycopg.conninfo.make_conninfo(live.url, user="plain", password="secret"))
        with connect(live.source) as ours, connect(as_plain) as theirs:
            assert source_id(theirs) == source_id(ours) is not None
    finally:
        live.sql("DROP OWNED BY plain", "DROP ROLE plain")


# ------------------------------------------------------------------------------------- one who writes at a time


def test_a_copy_beside_a_running_pipeline_waits_and_says_who_writes(live: Live, tmp_path: Path) -> None:
    """However the staging is called."""
    make(live)
    (tmp_path / "staging").mkdir()
    with live.running() as pipeline:
        live.wait_current(pipeline)
        heard = live.heard
        settings = copy_settings(staging=tmp_path / "staging", busy_timeout=0.5)
        error = refusal(copy_once(live, settings=settings))
        assert isinstance(error, DestinationBusyError)
        assert "pipeline live" in error.message and "process" in error.message and "--staging" not in error.hint
        assert any("waiting" in notice for notice in live.heard.notices)
        live.heard = heard
        live.sql("UPDATE items SET n = 0 WHERE id = 1")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
    assert not list(tmp_path.glob(".out.duckdb*")), "nothing is left beside the file"


def test_a_copy_does_not_replace_what_a_pipeline_keeps_current(live: Live, tmp_path: Path) -> None:
    make(live)
    live.pipeline().run(until="caught-up")
    error = refusal(copy_once(live))
    assert error.code == "destination.other_pipeline"
    assert "public.items" in error.message and "live" in error.message
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    live.pipeline().run(until="caught-up")
    assert live.heard.started == []
    assert_replicated(live.source, live.file)
    # As the hint says: another file, or the table dropped.
    copy_once(live, destination=DuckDBDestination(tmp_path / "another.duckdb")).run()
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("DROP TABLE public.items")
    copy_once(live).run()
    assert_replicated(live.source, live.file)


def test_a_table_that_was_copied_once_is_copied_again_and_may_be_kept_current(live: Live) -> None:
    make(live)
    copy_once(live).run()
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    copy_once(live).run()
    assert_replicated(live.source, live.file)
    live.sql("UPDATE items SET n = 0 WHERE id = 2")
    live.pipeline().run(until="caught-up")
    assert_replicated(live.source, live.file)


def test_two_pipelines_of_one_source_do_not_take_turns_with_one_table(live: Live, twin: Live) -> None:
    make(live)
    live.pipeline().run(until="caught-up")
    error = refusal(twin.pipeline(id="another"))
    assert error.code == "destination.other_pipeline" and "--id live" in error.hint

    # One that begins anew under the same name takes the tables over, and the one before it is told.
    twin.pipeline().run(until="caught-up")
    assert any("live" in notice and "public.items" in notice for notice in twin.heard.notices)
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    before = live.store().get_table_replication_states()
    assert refusal(live.pipeline()).code == "destination.other_pipeline"
    assert live.store().get_table_replication_states() == before
    twin.pipeline().run(until="caught-up")
    assert twin.heard.started == []
    assert_replicated(live.source, live.file)


# ---------------------------------------------------------------------------------------- the state and its destination


def test_a_file_of_another_pipeline_is_refused_and_the_state_stays_as_it_is(live: Live, tmp_path: Path) -> None:
    make(live)
    stale = tmp_path / "stale.duckdb"
    copy_once(live, destination=DuckDBDestination(stale)).run()
    live.pipeline().run(until="caught-up")
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    states = live.store().get_table_replication_states()
    before = stale.read_bytes()
    error = refusal(live.pipeline(DuckDBDestination(stale)))
    assert error.code == "destination.other_destination"
    assert str(live.file) in error.message and str(stale) in error.message
    assert live.store().get_table_replication_states() == states
    assert stale.read_bytes() == before
    live.pipeline().run(until="caught-up")
    assert live.heard.started == []
    assert_replicated(live.source, live.file)

    # A fresh one takes its place.
    fresh = tmp_path / "fresh.duckdb"
    live.pipeline(DuckDBDestination(fresh)).run(until="caught-up")
    assert any("lost public.items" in notice for notice in live.heard.notices)
    assert_replicated(live.source, fresh)
    assert refusal(live.pipeline()).code == "destination.other_destination"


def test_a_backup_that_the_log_does_not_reach_is_copied_again(live: Live) -> None:
    make(live)
    live.pipeline().run(until="caught-up")
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("UPDATE _walrelay.progress SET applied_lsn = '0/10'")
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    live.pipeline().run(until="caught-up")
    assert live.heard.started == ["public.items"]
    assert any("public.items is at 0/10" in notice and "copied again" in notice for notice in live.heard.notices)
    assert_replicated(live.source, live.file)
    live.pipeline().run(until="caught-up")
    assert live.heard.started == []


def test_a_copy_does_not_take_the_state_of_a_pipeline_that_keeps_tables_current(live: Live, tmp_path: Path) -> None:
    make(live)
    elsewhere = DuckDBDestination(tmp_path / "elsewhere.duckdb")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        assert isinstance(refusal(live.pipeline(elsewhere, mode="copy")), StoreInUseError)
    states = live.store().get_table_replication_states()
    assert refusal(live.pipeline(elsewhere, mode="copy")).code == "pipeline.kept_current"
    assert live.store().get_table_replication_states() == states and not elsewhere.path.exists()
    live.pipeline().run(until="caught-up")
    assert live.heard.started == []


# --------------------------------------------------------------------------------------------------------- readers


def test_two_pipelines_of_one_id_are_two_readers_of_a_log(live: Live, twin: Live, tmp_path: Path) -> None:
    twin.log, twin.slot, twin.file = live.log, live.slot, tmp_path / "twin.duckdb"
    make(live)
    live.pipeline().run(until="caught-up")
    positions = ReaderPositions(open_storage(str(live.log)))
    (first,) = positions.positions().items()
    live.sql("UPDATE items SET n = 0 WHERE id = 1")
    twin.pipeline().run(until="caught-up")
    assert len(positions.positions()) == 2
    assert positions.positions()[first[0]] == first[1], "the other has not moved it"
    live.pipeline().run(until="caught-up")
    assert positions.positions()[first[0]] > first[1]
    assert_replicated(live.source, live.file)
    assert_replicated(live.source, twin.file)


def test_a_reader_of_an_earlier_version_goes_on_under_its_new_name(live: Live) -> None:
    make(live)
    live.pipeline().run(until="caught-up")
    positions = ReaderPositions(open_storage(str(live.log)))
    ((name, lsn),) = positions.positions().items()
    positions.remove(name)
    positions.record("live", lsn)
    live.store().store_fact(0, "name", None)
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("UPDATE _walrelay.tables SET pipeline = NULL; UPDATE _walrelay.progress SET pipeline = NULL")
    live.pipeline().run(until="caught-up")
    (now,) = positions.positions()
    assert now.startswith("live-") and now != name
    # One that is ahead belongs to somebody else.
    positions.record("live", Lsn(lsn + (1 << 40)))
    live.store().store_fact(0, "name", None)
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("UPDATE _walrelay.tables SET pipeline = NULL; UPDATE _walrelay.progress SET pipeline = NULL")
    live.pipeline().run(until="caught-up")
    assert "live" in positions.positions() and len(positions.positions()) == 3


def test_a_reader_is_listed_and_forgotten_unless_it_runs(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    make(live)
    state = live.log.parent
    arguments = ["--state", str(state), "--log", str(live.log), "--json"]
    positions = ReaderPositions(open_storage(str(live.log)))
    with live.running() as pipeline:
        live.wait_current(pipeline)
        with pytest.raises(ReaderInUseError, match="is running"):
            forget_reader(state, "live", str(live.log))
        positions.record("retired", Lsn(1))
        with pytest.raises(ReaderInUseError, match="has read from the log"):
            forget_reader(state, "retired", str(live.log))
    storage = open_storage(str(live.log))
    ReaderPositions(storage, clock=lambda: 0.0).record("retired", Lsn(2))
    run_command(["status", *arguments])
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)["readers"]}
    assert len(listed) == 2 and listed["retired"]["lsn"] == "0/2" and not listed["retired"]["is_this"]
    run_command(["forget-reader", "retired", *arguments])
    assert json.loads(capsys.readouterr().out)["reader"] == "retired"
    (name,) = positions.positions()
    run_command(["forget-reader", "live", *arguments])
    assert json.loads(capsys.readouterr().out) == {"reader": name, "lsn": listed[name]["lsn"], "left": []}
    assert positions.positions() == {}
    with pytest.raises(ReaderMissingError, match="no reader retired"):
        forget_reader(state, "retired", str(live.log))


def run_command(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, None)
