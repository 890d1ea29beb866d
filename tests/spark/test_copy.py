"""What a copy takes and what it leaves: publications, filters, partitions, keys; on real Spark and real Postgres."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession

from walrelay import CopySettings, DuckDBDestination, MemoryDestination, MemoryStore, Pipeline, PostgresSource
from walrelay.errors import CopyFailedError, PublicationEmptyError, PublicationMissingError, RightsError
from walrelay.model.phases import FinishedCopy
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.workers.report import RunSummary, Silent

pytestmark = pytest.mark.spark


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def copy_to_memory(spark: SparkSession, url: str, **settings: Any) -> tuple[MemoryDestination, RunSummary]:
    destination = MemoryDestination()
    source = PostgresSource(url, publication="p")
    chosen = CopySettings(**settings)
    return destination, Pipeline(source, destination, MemoryStore(), "copy", spark=spark, settings=chosen).run()


def copy_to_duckdb(spark: SparkSession, url: str, path: Path) -> RunSummary:
    return Pipeline(PostgresSource(url, publication="p"), DuckDBDestination(path), spark=spark).run()


def query(path: Path, question: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(question).fetchall()


def test_a_table_keeps_schema_name_column_order_and_key(spark: SparkSession, database: str, tmp_path: Path) -> None:
    execute(
        database,
        'CREATE SCHEMA "Odd Schema"',
        'CREATE TABLE "Odd Schema"."Tab""le" (z int, "a b" text, k1 int, "K2" int, PRIMARY KEY ("K2", k1))',
        """INSERT INTO "Odd Schema"."Tab""le" VALUES (1, 'x', 2, 3)""",
        'CREATE PUBLICATION p FOR TABLE "Odd Schema"."Tab""le"',
    )
    copy_to_duckdb(spark, database, tmp_path / "out.duckdb")
    columns = query(
        tmp_path / "out.duckdb", "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'Tab\"le'"
    )
    assert columns == [("z", "INTEGER"), ("a b", "VARCHAR"), ("k1", "INTEGER"), ("K2", "INTEGER")]
    assert query(tmp_path / "out.duckdb", 'FROM "Odd Schema"."Tab""le"') == [(1, "x", 2, 3)]
    assert query(tmp_path / "out.duckdb", "SELECT primary_key, row_count FROM _walrelay.tables") == [(["K2", "k1"], 1)]
    comment = query(tmp_path / "out.duckdb", "SELECT comment FROM duckdb_tables() WHERE table_name = 'Tab\"le'")
    assert comment == [("primary key: K2, k1",)]


def test_an_empty_table_and_a_table_without_key_and_one_without_columns_are_made(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE nothing (id int PRIMARY KEY, at timestamptz)",
        "CREATE TABLE keyless (a int, b text)",
        "INSERT INTO keyless VALUES (1, 'x'), (1, 'x')",
        "CREATE TABLE bare ()",
        "INSERT INTO bare SELECT FROM generate_series(1, 3)",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    summary = copy_to_duckdb(spark, database, tmp_path / "out.duckdb")
    assert {str(table.name): table.rows for table in summary.tables} == {
        "public.nothing": 0, "public.keyless": 2, "public.bare": 3,
    }  # fmt: skip
    assert query(tmp_path / "out.duckdb", "SELECT count(*) FROM public.nothing") == [(0,)]
    assert query(tmp_path / "out.duckdb", "FROM public.keyless") == [(1, "x"), (1, "x")]


def test_row_filters_and_column_lists_of_the_publication_are_honoured(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, secret text, kind text)",
        "INSERT INTO t SELECT g, 'secret', CASE g % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END FROM generate_series(1, 9) g",
        "CREATE PUBLICATION p FOR TABLE t (kind, id) WHERE (kind = 'a' OR kind IS NULL)",
    )
    destination, _ = copy_to_memory(spark, database)
    rows = destination.rows("public.t")
    assert {tuple(row) for row in rows} == {("id", "kind")}
    assert sorted(row["id"] for row in rows) == [2, 3, 5, 6, 8, 9]


def test_generated_columns_come_as_the_publication_says(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, double int GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO t VALUES (21)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    assert copy_to_memory(spark, database)[0].rows("public.t") == [{"id": 21}]
    execute(database, "ALTER PUBLICATION p SET (publish_generated_columns = stored)")
    assert copy_to_memory(spark, database)[0].rows("public.t") == [{"id": 21, "double": 42}]


def test_a_partitioned_parent_is_read_from_its_leaves(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE m (id int, at date, note text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE m_a PARTITION OF m FOR VALUES FROM ('2024-01-01') TO ('2024-07-01')",
        # Another column order, as partitions that were attached have.
        "CREATE TABLE m_b (note text, at date NOT NULL, gone int, id int NOT NULL)",
        "ALTER TABLE m_b DROP COLUMN gone",
        "ALTER TABLE m ATTACH PARTITION m_b FOR VALUES FROM ('2024-07-01') TO ('2025-01-01')",
        "INSERT INTO m SELECT g, '2024-01-01'::date + g, 'n' || g FROM generate_series(0, 365) g",
        "CREATE PUBLICATION p FOR TABLE m WITH (publish_via_partition_root = true)",
    )
    destination, summary = copy_to_memory(spark, database)
    assert list(destination.tables) == ["public.m"]
    assert summary.rows == 366
    assert sorted(row["note"] for row in destination.rows("public.m")) == sorted(f"n{g}" for g in range(366))
    execute(database, "ALTER PUBLICATION p SET (publish_via_partition_root = false)")
    assert set(copy_to_memory(spark, database)[0].tables) == {"public.m_a", "public.m_b"}


def test_inherited_children_are_not_read_with_their_parent(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE parent (id int)",
        "CREATE TABLE child (extra int) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2, 3)",
        "CREATE PUBLICATION p FOR TABLE ONLY parent",
    )
    assert copy_to_memory(spark, database)[0].rows("public.parent") == [{"id": 1}]


def test_many_ranges_cover_every_row_once(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int, filler text)",
        "INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 60000) g",
        "DELETE FROM t WHERE id % 7 = 0",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    destination, _ = copy_to_memory(
        spark, database, range_bytes=1024 * 1024, chunk_bytes=64 * 1024, file_bytes=1024 * 1024
    )
    assert sorted(row["id"] for row in destination.rows("public.t")) == [g for g in range(1, 60001) if g % 7]


def test_all_tasks_of_a_table_see_one_snapshot(spark: SparkSession, database: str) -> None:
    """Rows moved from a late range to the table's end, and new ones, while the copy runs, are seen as they were."""
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, filler text)",
        "INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 40000) g",
        "CREATE PUBLICATION p FOR TABLE t",
    )

    class Meddler(Silent):
        def table_started(self, table: object, attempt: int) -> None:
            pass

        def table_progress(self, table: object, rows: int) -> None:
            execute(
                database, "UPDATE t SET filler = repeat('y', 500) WHERE id % 3 = 0", "DELETE FROM t WHERE id > 39000"
            )

    destination = MemoryDestination()
    settings = CopySettings(range_bytes=1024 * 1024)
    source = PostgresSource(database, publication="p")
    Pipeline(source, destination, spark=spark, settings=settings, listener=Meddler()).run()
    table = destination.tables["public.t"]
    ids = sorted(table.column("id").to_pylist())
    fillers = set(table.column("filler").to_pylist())
    assert len(fillers) == 1
    assert ids in ([*range(1, 40001)], [*range(1, 39001)])


def test_a_second_copy_replaces_the_first(spark: SparkSession, database: str, tmp_path: Path) -> None:
    execute(
        database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CREATE PUBLICATION p FOR TABLE t"
    )
    copy_to_duckdb(spark, database, tmp_path / "out.duckdb")
    execute(database, "ALTER TABLE t ADD COLUMN more text", "UPDATE t SET more = 'm'")
    copy_to_duckdb(spark, database, tmp_path / "out.duckdb")
    assert query(tmp_path / "out.duckdb", "FROM public.t") == [(1, "m")]
    assert [path.name for path in tmp_path.iterdir()] == ["out.duckdb"]


def test_a_file_that_the_same_program_has_open_is_written_all_the_same(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)", "CREATE PUBLICATION p FOR TABLE t")
    with duckdb.connect(str(tmp_path / "out.duckdb")) as open_already:
        copy_to_duckdb(spark, database, tmp_path / "out.duckdb")
        assert open_already.execute("FROM public.t").fetchall() == [(1,)]


def test_the_store_knows_the_phases_and_schemas(spark: SparkSession, database: str) -> None:
    execute(database, "CREATE TABLE t (id int)", "CREATE PUBLICATION p FOR TABLE t")
    store = MemoryStore()
    Pipeline(PostgresSource(database, publication="p"), MemoryDestination(), store, spark=spark).run()
    assert [found.schema.columns[0].name for found in store.get_table_schemas()] == ["id"]
    assert list(store.get_table_replication_states().values()) == [FinishedCopy()]


def test_one_failing_table_does_not_hinder_the_others(
    spark: SparkSession, database: str, postgres18: EmbeddedPostgres, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE open (id int)",
        "INSERT INTO open VALUES (1)",
        "CREATE TABLE closed (id int)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON open TO reader",
    )
    try:
        with pytest.raises(CopyFailedError) as caught:
            copy_to_duckdb(spark, database.replace("postgres@", "reader@"), tmp_path / "out.duckdb")
    finally:
        execute(database, "DROP OWNED BY reader", "DROP ROLE reader")
    assert [str(table.name) for table in caught.value.summary.failed] == ["public.closed"]
    assert isinstance(caught.value.summary.failed[0].error, RightsError)
    assert query(tmp_path / "out.duckdb", "FROM public.open") == [(1,)]


def test_row_security_that_would_hide_rows_is_an_error(spark: SparkSession, database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE PUBLICATION p FOR TABLE t",
        "CREATE ROLE limited LOGIN",
        "GRANT SELECT ON t TO limited",
    )
    try:
        with pytest.raises(CopyFailedError) as caught:
            copy_to_memory(spark, database.replace("postgres@", "limited@"))
    finally:
        execute(database, "DROP OWNED BY limited", "DROP ROLE limited")
    assert caught.value.context["code"] == "source.row_security"


def test_publications_that_are_missing_or_empty_say_so(spark: SparkSession, database: str) -> None:
    with pytest.raises(PublicationMissingError):
        copy_to_memory(spark, database)
    execute(database, "CREATE PUBLICATION p")
    with pytest.raises(PublicationEmptyError):
        copy_to_memory(spark, database)
