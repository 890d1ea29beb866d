"""Changes that cannot be decoded: they are their table's affair, and everything else goes on."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from tests.spark.live_kit import Live
from walrelay.cli.app import app
from walrelay.config.settings import copy_settings
from walrelay.errors import CopyFailedError, UndecodedChangesError
from walrelay.model.phases import Errored, Ready
from walrelay.testing.assertions import assert_replicated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COMPOSITE = (
    "CREATE TYPE pair AS (a text, b int)",
    "CREATE TABLE pairs (id int PRIMARY KEY, value pair)",
    "CREATE TABLE others (id int PRIMARY KEY, n int)",
    "INSERT INTO pairs SELECT g, ROW('x', g)::pair FROM generate_series(1, 100) AS g",
    "INSERT INTO others SELECT g, g FROM generate_series(1, 100) AS g",
    "CREATE PUBLICATION p FOR TABLE pairs, others",
)
BACKLOG = (
    "UPDATE pairs SET value = ROW('old', -id)::pair WHERE id <= 20",
    "UPDATE others SET n = -1 WHERE id <= 20",
    "ALTER TYPE pair ADD ATTRIBUTE c int",
    "UPDATE pairs SET value = ROW('new', id, 7)::pair WHERE id > 90",
    "UPDATE others SET n = -2 WHERE id > 90",
)
"""What is written while no pipeline runs: rows of the old attributes, then rows of the new ones."""


def phase_of(live: Live, name: str) -> Any:
    store = live.store()
    table = next(table for table, known in store.get_table_mappings().items() if known == f"public.{name}")
    return store.get_table_replication_state(table)


def in_file(live: Live, question: str) -> list[Any]:
    with duckdb.connect(str(live.file), read_only=True) as connection:
        return connection.execute(question).fetchall()


def behind_a_backlog(live: Live) -> None:
    live.sql(*COMPOSITE)
    with live.running() as pipeline:
        live.wait_current(pipeline)
    live.sql(*BACKLOG)


def test_a_composite_altered_behind_a_backlog_has_its_table_copied_again(live: Live) -> None:
    behind_a_backlog(live)
    with live.running() as pipeline:
        live.wait_current(pipeline)
        assert live.heard.started == ["public.pairs"]
        assert_replicated(live.source, live.file)
        live.sql("UPDATE pairs SET value = ROW('later', 1, 2)::pair WHERE id = 1", "DELETE FROM others WHERE id = 2")
        live.wait_current(pipeline)
        assert live.heard.started == ["public.pairs"], "later rows are decoded"
        assert_replicated(live.source, live.file)


def command(live: Live, *words: str) -> Any:
    """What `walrelay quarantine …` prints, as JSON."""
    result = CliRunner().invoke(app, ["quarantine", *words, "--state", str(live.log.parent), "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_by_policy_the_table_waits_for_a_person_and_the_others_go_on(live: Live) -> None:
    behind_a_backlog(live)
    waiting = copy_settings(on_bad_changes="error", on_silent_change="ignore")
    with pytest.raises(CopyFailedError, match=r"20 changes of public\.pairs could not be decoded") as caught:
        live.pipeline(settings=waiting).run(until="caught-up")
    assert caught.value.context["code"] == "changes.undecoded"
    assert isinstance(phase_of(live, "pairs"), Errored)
    assert in_file(live, "SELECT count(*) FROM public.others WHERE n < 0") == [(30,)], "the other table is current"
    found = command(live, "list")
    assert {(one["table"], one["op"], one["state"], one["key"]) for one in found} == {
        ("public.pairs", "update", "open", None)
    }
    assert (len(found), found[0]["key_columns"], found[0]["key_known"]) == (20, ["id"], True)
    assert {one["key"] for one in command(live, "list", "--show-values")} == {f'{{"id":{n}}}' for n in range(1, 21)}

    assert command(live, "retry") == [{"table": "public.pairs", "changes": 20, "done": True, "phase": "init"}]
    live.pipeline(settings=waiting).run(until="caught-up")
    assert live.heard.started == ["public.pairs"]
    assert_replicated(live.source, live.file)
    assert {one["state"] for one in command(live, "list", "--table", "public.pairs")} == {"settled"}
    assert command(live, "retry") == []


def test_without_copies_the_run_refuses_by_name_until_the_changes_are_dropped(live: Live) -> None:
    live.sql(*COMPOSITE)
    live.pipeline(mode="changes").run(until="caught-up")
    live.sql(*BACKLOG)
    for _ in range(2):
        with pytest.raises(UndecodedChangesError, match=r"20 changes of public\.pairs could not be decoded"):
            live.pipeline(mode="changes").run(until="caught-up")
    assert [(one["changes"], one["done"]) for one in command(live, "retry")] == [(20, False)]
    assert [(one["changes"], one["done"]) for one in command(live, "drop")] == [(20, True)]
    live.pipeline(mode="changes").run(until="caught-up")
    assert in_file(live, "SELECT count(*) FROM public.pairs WHERE id <= 20") == [(0,)]
    assert in_file(live, "SELECT count(*), min(value.c) FROM public.pairs WHERE id > 90") == [(10, 7)]
    assert {one["state"] for one in command(live, "list")} == {"dropped"}


def test_a_table_in_error_goes_on_without_what_was_dropped(live: Live) -> None:
    behind_a_backlog(live)
    waiting = copy_settings(on_bad_changes="error", on_silent_change="ignore")
    with pytest.raises(CopyFailedError):
        live.pipeline(settings=waiting).run(until="caught-up")
    command(live, "drop", "--table", "public.pairs")
    # Its type has got an attribute, for which it is copied again anyway: what was dropped no longer holds it.
    live.pipeline(settings=waiting).run(until="caught-up")
    assert isinstance(phase_of(live, "pairs"), Ready)
