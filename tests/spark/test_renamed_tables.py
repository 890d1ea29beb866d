"""Tables that get each other's names while a pipeline runs, and while it does not: nothing is lost or left behind."""

from __future__ import annotations

import pytest

from tests.integration.renaming_kit import Renaming
from tests.spark.live_kit import Live
from walrelay.model.phases import Errored

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def check(live: Live) -> None:
    assert not [one for one in live.store().get_table_replication_states().values() if isinstance(one, Errored)]
    Renaming(live.url).check(live.file)


def test_tables_and_schemas_that_change_names_keep_their_rows(live: Live) -> None:
    renaming = Renaming(live.url, ("both", "first"))
    renaming.make()
    renaming.fill()
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.heard.started.clear()
        renaming.rename_all(100, at_once=True)
        live.wait_current(pipeline)
        check(live)
        assert live.heard.started == []
    # Behind a backlog, and after a restart.
    for n in (200, 300, 400):
        renaming.rename_all(n, at_once=n == 300)
    live.pipeline().run(until="caught-up")
    assert live.heard.started == []
    check(live)


def test_a_new_table_under_the_name_of_one_that_was_renamed_replaces_none_of_its_rows(live: Live) -> None:
    """As those do who rotate a table by the month."""
    live.sql(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "INSERT INTO items SELECT g, g FROM generate_series(1, 10) AS g",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(
            "BEGIN; ALTER TABLE items RENAME TO items_old; CREATE TABLE items (id int PRIMARY KEY, n int); COMMIT",
            "INSERT INTO items VALUES (1, 100)",
        )
        live.wait_current(pipeline, "public.items", "public.items_old")
        check(live)
        live.sql("UPDATE items_old SET n = 0 WHERE id = 1", "UPDATE items SET n = 0 WHERE id = 1")
        live.wait_current(pipeline)
        check(live)


def test_a_table_that_was_renamed_and_is_copied_again_leaves_no_older_copy(live: Live) -> None:
    live.sql(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "INSERT INTO items SELECT g, g FROM generate_series(1, 10) AS g",
        "CREATE TABLE more (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    for rename in ([], ["ALTER TABLE items RENAME TO things"], ["ALTER TABLE more RENAME TO items"]):
        live.sql(*rename)
        live.pipeline(mode="copy", store=None, log=None, slot=None).run()
        check(live)
