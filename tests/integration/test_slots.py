"""`walrelay slots`: every slot is shown with what it keeps and who reads it; only what nobody reads can be dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from walrelay.cli.app import app
from walrelay.control.slots import drop_slots, list_slots
from walrelay.errors import ConfigError, SlotInUseError, SlotMissingError, SlotNotOursError
from walrelay.log.failures import LogNotFoundError
from walrelay.log.identity import write_lineage
from walrelay.log.storage import open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import connect
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.slot import find_slot, wait_until_free
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres


@pytest.fixture
def slots(database: str) -> Iterator[tuple[str, str]]:
    """One with our name, and one that could be anybody's."""
    ours, other = f"walrelay_{uuid4().hex[:8]}", f"other_{uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")  # what is not written yet is not kept either
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        for name in (ours, other):
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        connection.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        yield ours, other
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = ANY (%s)",
            ([ours, other],),
        )


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_each_slot_is_shown_with_the_wal_it_keeps_and_whether_it_is_ours(database: str, slots: tuple[str, str]) -> None:
    ours, other = slots
    listed = {line["name"]: line for line in json.loads(run("slots", "list", database, "--json"))}
    assert listed[ours]["ours"] and not listed[other]["ours"]
    assert listed[ours]["retained_bytes"] > 10_000 and listed[ours]["active_pid"] is None
    shown = run("slots", "list", database)
    assert f"{ours}  keeps " in shown and "walrelay's; logical pgoutput" in shown and "read by nobody" in shown


def test_dropping_says_what_was_kept_and_leaves_the_others(database: str, slots: tuple[str, str]) -> None:
    ours, other = slots
    (dropped,) = json.loads(run("slots", "drop", database, ours, "--json"))
    assert dropped["name"] == ours and dropped["retained_bytes"] > 10_000
    left = {line.name for line in list_slots(PostgresSource(database))}
    assert ours not in left and other in left


def test_a_slot_that_is_read_is_refused_with_its_reader(database: str, slots: tuple[str, str]) -> None:
    ours, other = slots
    source = PostgresSource(database, publication="p")
    with ReplicationConnection(source, application="walrelay capture") as reader, connect(source) as look:
        slot = find_slot(look, other)
        assert slot is not None and slot.confirmed_lsn is not None
        reader.start(other, "p", slot.confirmed_lsn)
        pid = reader._connection.info.backend_pid
        line = next(line for line in list_slots(source) if line.name == other)
        assert line.ours and line.active_pid == pid and line.application == "walrelay capture"
        with pytest.raises(SlotInUseError, match=f"process {pid} .walrelay capture") as caught:
            drop_slots(source, [ours, other])
        assert f"pg_terminate_backend({pid})" in caught.value.hint
        reader.finish(slot.confirmed_lsn)
        wait_until_free(look, other)
    assert ours in {line.name for line in list_slots(source)}, "one is refused, and none is dropped"


def test_a_slot_that_is_missing_or_not_ours_is_refused(database: str, slots: tuple[str, str]) -> None:
    ours, other = slots
    source = PostgresSource(database)
    with pytest.raises(SlotMissingError, match="no replication slot nothing"):
        drop_slots(source, [ours, "nothing"])
    with pytest.raises(SlotNotOursError) as caught:
        drop_slots(source, [other])
    assert "--force" in caught.value.hint
    assert f"{other} is dropped" in run("slots", "drop", database, other, "--force")
    assert {line.name for line in list_slots(source)} >= {ours}


def test_the_slot_of_a_pipeline_is_dropped_by_its_state(slots: tuple[str, str], database: str, tmp_path: Path) -> None:
    ours, _ = slots
    nothing = CliRunner().invoke(app, ["slots", "drop", database, "--state", str(tmp_path)])
    assert nothing.exit_code != 0 and isinstance(nothing.exception, LogNotFoundError)
    assert "slots list" in (nothing.exception.hint or "")
    write_lineage(open_storage(tmp_path / "log"), Lineage(ours, "1", 1, Lsn(1)))
    dropped = CliRunner().invoke(app, ["slots", "drop", database, "--state", str(tmp_path)])
    assert dropped.exit_code == 0 and f"{ours} is dropped" in dropped.output
    with pytest.raises(ConfigError, match="no slot is named"):
        CliRunner().invoke(app, ["slots", "drop", database], catch_exceptions=False)
