"""Tables that are altered while they are replicated, with rows in them that no change speaks of."""

from __future__ import annotations

import pytest

from tests.spark.live_kit import Live, ended, phases
from walrelay.config.settings import copy_settings
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.failpoints import armed
from walrelay.workers import live as live_module

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

UNTOLD = {
    "constant": "ADD COLUMN more int DEFAULT 7",
    "taken_away": "ADD COLUMN more int DEFAULT 7; ALTER TABLE taken_away ALTER COLUMN more DROP DEFAULT",
    "volatile": "ADD COLUMN more float DEFAULT random()",
    "serial": "ADD COLUMN more serial",
    "identity": "ADD COLUMN more int GENERATED ALWAYS AS IDENTITY",
    "in_domain": "ADD COLUMN more sevens",
    "computed": "ALTER COLUMN n TYPE text USING 'number ' || n",
    "rounded": "ALTER COLUMN price TYPE numeric(6, 1)",
    "wider": "ALTER COLUMN n TYPE bigint",  # it may have been USING n * 100
}
"""What gives rows values that no change brings, by the table to which it happens."""
TOLD = {
    "no_default": "ADD COLUMN more int",
    "more_digits": "ALTER COLUMN price TYPE numeric(10, 2)",
    "default_later": "ALTER COLUMN n SET DEFAULT 7",
    "renamed": "RENAME COLUMN n TO m",
    "dropped": "DROP COLUMN n",
    "emptied": "ADD COLUMN more int; TRUNCATE emptied; INSERT INTO emptied VALUES (1)",
    "empty": "ADD COLUMN more int DEFAULT 7; INSERT INTO empty VALUES (1), (2)",
}


@pytest.fixture(autouse=True)
def seldom(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tables look like is not found out by a chance look at the publication."""
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 3600.0)


def make(live: Live, *tables: str) -> None:
    live.sql("CREATE DOMAIN sevens AS int DEFAULT 7")
    for table in tables:
        live.sql(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int, price numeric(6, 2))",
            f"INSERT INTO {table} SELECT g, g, g + 0.55 FROM generate_series(1, 1000) AS g",
        )


def test_tables_whose_older_rows_have_got_values_are_copied_again_and_no_others(live: Live) -> None:
    make(live, "listed", *UNTOLD, *TOLD)
    live.sql("DELETE FROM empty", f"CREATE PUBLICATION p FOR TABLE listed (id, n), {', '.join([*UNTOLD, *TOLD])}")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.heard.started.clear()
        # What a publication names later was there all the time.
        live.sql(f"ALTER PUBLICATION p SET TABLE listed (id, n, price), {', '.join([*UNTOLD, *TOLD])}")
        for table, change in {**UNTOLD, **TOLD}.items():
            live.sql(f"ALTER TABLE {table} {change}")
        for table in ("listed", *UNTOLD, *TOLD):
            live.sql(f"UPDATE {table} SET id = -id WHERE id = 1")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
        assert set(live.heard.started) == {f"public.{name}" for name in ("listed", *UNTOLD)}


def test_the_store_has_every_shape_from_its_lsn_on(live: Live) -> None:
    make(live, "items")
    live.sql("CREATE PUBLICATION p FOR TABLE items")
    moments = []
    with live.running() as pipeline:
        live.wait_current(pipeline)
        for change in ("ADD COLUMN more int", "DROP COLUMN n", "RENAME COLUMN more TO most"):
            moments.append(ended(live))
            live.sql(f"ALTER TABLE items {change}", "UPDATE items SET price = 0 WHERE id = 1")
        live.wait_current(pipeline)
        assert live.heard.started == ["public.items"]
    store = live.store()
    ((table, _),) = store.get_table_mappings().items()
    found = [store.get_table_schema(table, lsn) for lsn in (*moments, None)]
    assert [[column.name for column in one.schema.columns] for one in found if one is not None] == [
        ["id", "n", "price"],
        ["id", "n", "price", "more"],
        ["id", "price", "more"],
        ["id", "price", "most"],
    ]
    assert len(store.get_table_schemas()) == 4, "one that has not changed is not stored again"


def test_a_table_altered_between_its_snapshot_and_its_catch_up_is_copied_again(live: Live) -> None:
    make(live, "items")
    live.sql("CREATE PUBLICATION p FOR TABLE items")
    with live.running() as pipeline:
        with armed("copy.after_finished=sleep:1"):
            live.wait(pipeline, lambda _: phases(pipeline).get("public.items") == "finished_copy", "it is copied")
            live.sql("ALTER TABLE items ADD COLUMN more int DEFAULT 7", "UPDATE items SET n = 0 WHERE id = 1")
            live.wait_ready(pipeline)
        live.wait_current(pipeline)
        assert live.heard.started == ["public.items", "public.items"]
        assert_replicated(live.source, live.file)


def test_a_table_that_was_renamed_before_is_copied_again_too(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file it still has its old name."""
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 0.1)
    make(live, "items")
    live.sql("CREATE PUBLICATION p FOR TABLE items")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("ALTER TABLE items RENAME TO things")
        live.wait(pipeline, lambda _: "public.things" in phases(pipeline), "its name is found")
        live.sql("ALTER TABLE things ADD COLUMN more int DEFAULT 7", "UPDATE things SET n = 0 WHERE id = 1")
        live.wait_current(pipeline)
        assert live.heard.started == ["public.items", "public.things"]
        assert_replicated(live.source, live.file)


def test_a_table_that_is_renamed_while_it_waits_for_its_copy_is_copied(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "DISCOVER_SECONDS", 1.0)
    make(live, "one", "other")
    live.sql("CREATE PUBLICATION p FOR TABLE one, other")
    one_by_one = copy_settings(retry_delay=0.1, retries=8, max_tables=1)
    with armed("copy.during=sleep:1"), live.running(settings=one_by_one) as pipeline:
        live.wait(pipeline, lambda _: "data_sync" in phases(pipeline).values(), "one is being copied")
        (waiting,) = [name for name, phase in phases(pipeline).items() if phase == "init"]
        live.sql(f"ALTER TABLE {waiting} RENAME TO renamed")
        live.wait_ready(pipeline, "public.renamed")
        live.wait_current(pipeline)
        assert live.heard.retried
        assert_replicated(live.source, live.file)
