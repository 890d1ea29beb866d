"""By what rows are told apart, and what happens where that, or a value, is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.spark.live_kit import Live, table
from walrelay.pipeline import Pipeline
from walrelay.testing.assertions import assert_replicated
from walrelay.workers.status import PipelineStatus, TableStatus

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TOASTED = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) AS g)"
"""A text that is stored outside of its row."""


def held(path: Path, question: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.sql(question).fetchall()


def wait_errored(live: Live, pipeline: Pipeline, name: str) -> TableStatus:
    def is_errored(status: PipelineStatus) -> bool:
        return any(str(one.name) == name and one.phase == "errored" for one in status.tables)

    status = live.wait(pipeline, is_errored, f"{name} is in error")
    return table(status, name)


def roll_back(live: Live, name: str) -> None:
    """Let the table be tried again at the next start."""
    store = live.store()
    try:
        (found,) = [one for one, known in store.get_table_mappings().items() if known == name]
        store.rollback_table_replication_state(found)
    finally:
        store.close()


def test_a_deferrable_key_tells_no_rows_apart(live: Live) -> None:
    """Within a statement two rows may have the same one."""
    live.sql(
        "CREATE TABLE immediate (id int PRIMARY KEY DEFERRABLE, v text)",
        "CREATE TABLE postponed (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)",
        "CREATE TABLE including (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "CREATE TABLE including_full (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "CREATE TABLE later (id int PRIMARY KEY, v text)",
        *(
            f"ALTER TABLE {name} REPLICA IDENTITY FULL"
            for name in ("immediate", "postponed", "including_full", "later")
        ),
        *(
            f"INSERT INTO {name} SELECT g FROM generate_series(1, 10) AS g"
            for name in ("immediate", "postponed", "including", "including_full", "later")
        ),
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(
            "UPDATE immediate SET id = id + 1",
            "UPDATE postponed SET id = id + 1",
            "UPDATE immediate SET v = 'x' WHERE id = 5",
            "UPDATE including SET v = 'x' WHERE id = 5",
            "UPDATE including_full SET v = 'x' WHERE id = 5",
            "UPDATE later SET v = 'x' WHERE id = 5",
        )
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
        live.sql(
            "ALTER TABLE later DROP CONSTRAINT later_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
            "UPDATE later SET id = id + 1",
        )
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


@pytest.mark.parametrize("published", ["insert", "insert, update", "insert, truncate"])
def test_a_key_that_is_inserted_again_replaces_the_row(live: Live, published: str) -> None:
    """Its delete is not published; in one batch or in two, the destination has the row that came last."""
    live.sql(
        *(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)"
            for name in ("one", "two", "nameless_one", "nameless_two")
        ),
        *(f"ALTER TABLE {name} REPLICA IDENTITY NOTHING" for name in ("nameless_one", "nameless_two")),
        f"CREATE PUBLICATION p FOR ALL TABLES WITH (publish = '{published}')",
    )

    def insert(name: str, word: str) -> str:
        return f"INSERT INTO {name} VALUES (1, '{word}'), (2, '{word}')"

    kinds = ("", "nameless_") if published != "insert, update" else ("",)
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(*(insert(f"{kind}two", "first") for kind in kinds))
        live.wait_current(pipeline)
        for kind in kinds:
            one, two = f"{kind}one", f"{kind}two"
            live.sql(f"BEGIN; {insert(one, 'first')}; DELETE FROM {one}; {insert(one, 'second')}; COMMIT")
            live.sql(f"DELETE FROM {two}", insert(two, "second"))
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


FILTERED = (
    "CREATE TABLE t (id int PRIMARY KEY, big text, n int)",
    f"INSERT INTO t SELECT -g, {TOASTED}, 0 FROM generate_series(1, 9) AS g",
    "CREATE PUBLICATION p FOR TABLE t WHERE (id > 0)",
)


def test_a_row_that_a_filter_lets_in_without_a_value_is_refused_by_name_and_copied_after_the_remedy(live: Live) -> None:
    live.sql(*FILTERED, "CREATE TABLE well (id int PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE well")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("UPDATE t SET id = 1 WHERE id = -1", "INSERT INTO well VALUES (1)")
        errored = wait_errored(live, pipeline, "public.t")
        assert "big" in str(errored) and "public.t" in str(errored)
        assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in str(errored)
        live.wait_current(pipeline, "public.well")
        assert held(live.file, "SELECT count(*) FROM public.t WHERE big IS NULL") == [(0,)]
    live.sql("ALTER TABLE public.t REPLICA IDENTITY FULL")
    roll_back(live, "public.t")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        assert live.heard.started == ["public.t"], "it is copied again"
        live.sql("UPDATE t SET id = 2 WHERE id = -2")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


def test_a_row_let_in_without_a_value_is_taken_where_the_value_comes_later_or_is_not_wanted(live: Live) -> None:
    live.sql(*FILTERED)
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(
            "BEGIN; UPDATE t SET id = 1 WHERE id = -1; UPDATE t SET n = 7 WHERE id = 1;"
            " UPDATE t SET big = 'small' WHERE id = 1; COMMIT",
            "BEGIN; UPDATE t SET id = 2 WHERE id = -2; UPDATE t SET id = 22, n = 8 WHERE id = 2;"
            f" UPDATE t SET big = {TOASTED} || 'x' WHERE id = 22; UPDATE t SET id = 23 WHERE id = 22; COMMIT",
            "BEGIN; UPDATE t SET id = 3 WHERE id = -3; DELETE FROM t WHERE id = 3; COMMIT",
            "BEGIN; UPDATE t SET id = 4 WHERE id = -4; UPDATE t SET id = 44 WHERE id = 4;"
            " UPDATE t SET id = -4 WHERE id = 44; COMMIT",
        )
        live.wait_current(pipeline)
        assert live.heard.started == ["public.t"]
        assert_replicated(live.source, live.file)


def test_a_value_that_a_row_had_before_it_left_the_filter_is_not_taken_for_what_it_has_now(live: Live) -> None:
    """What happened to it outside was not sent."""
    live.sql(*FILTERED)
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(
            f"BEGIN; INSERT INTO t VALUES (1, {TOASTED}); UPDATE t SET id = -100 WHERE id = 1;"
            f" UPDATE t SET big = {TOASTED} || 'outside' WHERE id = -100; UPDATE t SET id = 1 WHERE id = -100; COMMIT"
        )
        wait_errored(live, pipeline, "public.t")
        assert held(live.file, "SELECT count(*) FROM public.t") == [(0,)]


@pytest.mark.parametrize("via_root", [True, False], ids=["as their root", "as themselves"])
def test_a_partitioned_table_without_partitions_is_copied_and_followed(live: Live, via_root: bool) -> None:
    live.sql(
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE TABLE root (id int, place text, PRIMARY KEY (id, place)) PARTITION BY LIST (place)",
        f"CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = {via_root})",
    )
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql(
            "CREATE TABLE nested PARTITION OF root FOR VALUES IN ('n') PARTITION BY LIST (id)",
            "CREATE TABLE east PARTITION OF root FOR VALUES IN ('e')",
            "INSERT INTO root VALUES (1, 'e'), (2, 'e'), (3, 'e')",
            "UPDATE root SET id = 4 WHERE id = 1",
            "DELETE FROM root WHERE id = 2",
            "INSERT INTO other VALUES (1)",
        )
        live.wait_current(pipeline, "public.other", "public.root" if via_root else "public.east")
        assert_replicated(live.source, live.file)
    with live.running() as pipeline:
        live.sql("INSERT INTO root VALUES (5, 'e')")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


def test_a_partitioned_table_without_partitions_is_an_empty_dataframe(spark: SparkSession, database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE root (id int, place text) PARTITION BY LIST (place)")
    frame = spark.read.format("walrelay").option("url", database).option("table", "public.root").load()
    assert frame.columns == ["id", "place"]
    assert frame.collect() == []


def test_a_table_without_columns_has_as_many_rows_as_its_source(live: Live) -> None:
    live.sql(
        "CREATE TABLE bare ()",
        "CREATE TABLE computed (a int GENERATED ALWAYS AS (1) STORED)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
        *(f"INSERT INTO {name} SELECT FROM generate_series(1, 5)" for name in ("bare", "computed")),
        "CREATE PUBLICATION p FOR TABLE bare, computed WITH (publish = 'insert, delete, truncate')",
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
    )

    def assert_rows(count: int) -> None:
        live.wait_current(pipeline)
        assert held(live.file, "SELECT count(*) FROM public.bare") == [(count,)]
        assert_replicated(live.source, live.file)

    with live.running() as pipeline:
        assert_rows(5)
        live.sql("INSERT INTO bare SELECT FROM generate_series(1, 7)", "INSERT INTO computed DEFAULT VALUES")
        assert_rows(12)
        live.sql("DELETE FROM bare WHERE ctid IN (SELECT ctid FROM bare LIMIT 4)")
        assert_rows(8)
        live.sql(
            "BEGIN; INSERT INTO bare DEFAULT VALUES; TRUNCATE bare; INSERT INTO bare SELECT FROM generate_series(1, 6);"
            " DELETE FROM bare WHERE ctid IN (SELECT ctid FROM bare LIMIT 2); COMMIT"
        )
        assert_rows(4)
        live.sql("ALTER TABLE bare ADD COLUMN a int", "INSERT INTO bare VALUES (1)")
        assert_rows(5)
        live.sql("DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare)")
        assert_rows(4)
        live.sql("ALTER TABLE bare DROP COLUMN a", "INSERT INTO bare DEFAULT VALUES")
        assert_rows(5)
        live.sql("ALTER TABLE bare ADD COLUMN b int DEFAULT 7", "INSERT INTO bare DEFAULT VALUES")
        assert_rows(6)
        live.sql("ALTER TABLE bare DROP COLUMN b", "DELETE FROM bare", "INSERT INTO bare DEFAULT VALUES")
        assert_rows(1)


PARTITIONED = (
    "CREATE TABLE root (id int, place text, other int NOT NULL, v text, PRIMARY KEY (id, place))"
    " PARTITION BY LIST (place)",
    "CREATE TABLE east PARTITION OF root FOR VALUES IN ('e')",
    "CREATE TABLE west PARTITION OF root FOR VALUES IN ('w')",
    "CREATE UNIQUE INDEX east_other ON east (other)",
    "INSERT INTO root SELECT g, p, g FROM generate_series(1, 9) AS g, unnest(ARRAY['e', 'w']) AS p",
    "CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
)


def test_a_partition_with_another_identity_than_its_root_is_refused_by_name(live: Live) -> None:
    live.sql(*PARTITIONED, "ALTER TABLE east REPLICA IDENTITY USING INDEX east_other")
    with live.running() as pipeline:
        said = str(wait_errored(live, pipeline, "public.root"))
        assert "public.east" in said and "public.west" not in said
        assert "ALTER TABLE public.east REPLICA IDENTITY DEFAULT" in said
    live.sql("ALTER TABLE public.east REPLICA IDENTITY DEFAULT")
    roll_back(live, "public.root")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("DELETE FROM root WHERE id = 3", "UPDATE root SET id = 20 WHERE id = 4")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


@pytest.mark.parametrize(
    "change", ["DELETE FROM root WHERE id = 3", "UPDATE root SET other = 100, id = 50 WHERE id = 3 AND place = 'e'"]
)
def test_a_partition_that_gets_another_identity_while_it_is_followed_is_refused(live: Live, change: str) -> None:
    live.sql(*PARTITIONED)
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("ALTER TABLE east REPLICA IDENTITY USING INDEX east_other", change)
        said = str(wait_errored(live, pipeline, "public.root"))
        assert "partition" in said and "public.root" in said
        assert held(live.file, "SELECT count(*) FROM public.root") == [(18,)]
    live.sql("ALTER TABLE public.east REPLICA IDENTITY DEFAULT")
    roll_back(live, "public.root")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


def test_a_partition_that_names_rows_by_a_key_under_a_root_without_one_is_refused_by_name(live: Live) -> None:
    live.sql(
        "CREATE TABLE root (id int NOT NULL, place text) PARTITION BY LIST (place)",
        "CREATE TABLE east PARTITION OF root FOR VALUES IN ('e')",
        "ALTER TABLE east ADD PRIMARY KEY (id)",
        "ALTER TABLE root REPLICA IDENTITY FULL",
        "INSERT INTO root VALUES (1, 'e'), (2, 'e')",
        "CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
    )
    with live.running() as pipeline:
        said = str(wait_errored(live, pipeline, "public.root"))
        assert "ALTER TABLE public.east REPLICA IDENTITY FULL" in said
    live.sql("ALTER TABLE public.east REPLICA IDENTITY FULL")
    roll_back(live, "public.root")
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("DELETE FROM root WHERE id = 1", "UPDATE root SET id = 3")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


def test_whole_partitions_of_a_root_without_an_identity_are_followed(live: Live) -> None:
    """Preflight asks for FULL on partitions; their changes then are called keys, as the root has it."""
    live.sql(
        "CREATE TABLE root (id int, place text, v text) PARTITION BY LIST (place)",
        "CREATE TABLE east PARTITION OF root FOR VALUES IN ('e')",
        "ALTER TABLE east REPLICA IDENTITY FULL",
        f"INSERT INTO root SELECT g, 'e', {TOASTED} FROM generate_series(1, 5) AS g",
        "CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
    )
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("UPDATE root SET id = id + 1", "DELETE FROM root WHERE id = 3")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)


def test_a_toasted_value_survives_a_new_key_in_a_partition_whose_root_is_full(live: Live) -> None:
    live.sql(
        *PARTITIONED,
        "ALTER TABLE root REPLICA IDENTITY FULL",
        f"UPDATE root SET v = {TOASTED}",
    )
    with live.running() as pipeline:
        live.wait_current(pipeline)
        live.sql("UPDATE root SET id = id + 100 WHERE id < 5")
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
