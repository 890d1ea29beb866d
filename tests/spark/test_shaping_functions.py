"""Functions on DataFrames in a pipeline that runs, on both roads; what is refused, and what puts a table aside."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import array, col, create_map, explode, length, lit, lower, raise_error, substring, when

from tests.spark.live_kit import Live
from tests.spark.test_shaped_pipeline import rows_in
from walrelay.model.table_options import Rename, TableOptions
from walrelay.shaping.failures import TableOptionError


def shortened(rows: DataFrame) -> DataFrame:
    """As a user writes it: new columns, altered ones, and one that does not arrive."""
    return rows.withColumn("initial", substring("name", 1, 1)).withColumn("n", col("n") * 10).drop("name")


def failing_on_13(rows: DataFrame) -> DataFrame:
    return rows.withColumn(
        "n",
        when(col("n") == 13, raise_error(lit("unlucky"))).otherwise(col("n")),
    )


PEOPLE = """
CREATE TABLE people (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, n int, body text, seen timestamptz);
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE TABLE notes (id int PRIMARY KEY, n int, body text);
ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
CREATE TABLE loose (name text, n int);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE people, notes, loose;
INSERT INTO people (name, n, body, seen) SELECT 'n' || g, g, 'b' || g, timestamptz '2020-01-01' + g * interval '1 h'
    FROM generate_series(1, 40) g;
INSERT INTO notes SELECT g, g, repeat(md5(g::text), 200) FROM generate_series(1, 10) g;
INSERT INTO loose SELECT 'x' || g % 3, 1 FROM generate_series(1, 9) g;
"""
PEOPLE_CHANGES = """
UPDATE people SET n = n + 1 WHERE n % 3 = 0;
DELETE FROM people WHERE n % 5 = 0;
UPDATE people SET id = gen_random_uuid() WHERE n % 7 = 0;
INSERT INTO people (name, n) VALUES ('é', NULL);
UPDATE notes SET n = n * 2 WHERE id < 6;
UPDATE notes SET id = 100 WHERE id = 7;
DELETE FROM notes WHERE id = 8;
DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose WHERE name = 'x1' LIMIT 1);
UPDATE loose SET n = 5 WHERE name = 'x2';
"""
FUNCTIONS = {
    "people": shortened,
    "notes": lambda rows: rows.withColumn("n", col("n") + 1),
    "loose": shortened,
}


def assert_functions_applied(live: Live) -> None:
    with psycopg.connect(live.url) as connection:
        people = connection.execute("SELECT id::text, n * 10, left(name, 1), body, seen FROM people").fetchall()
        notes = connection.execute("SELECT id, n + 1, body FROM notes").fetchall()
        loose = connection.execute("SELECT n * 10, left(name, 1) FROM loose").fetchall()
    columns = "id, n, initial, body, seen"
    assert sorted(rows_in(live.file, f"SELECT {columns} FROM public.people"), key=str) == sorted(people, key=str)
    assert sorted(rows_in(live.file, "SELECT id, n, body FROM public.notes")) == sorted(notes)
    assert sorted(rows_in(live.file, "SELECT n, initial FROM public.loose")) == sorted(loose)


def test_functions_are_applied_on_both_roads(live: Live) -> None:
    live.sql(*PEOPLE.strip().split(";\n"))
    with live.running(transform=FUNCTIONS, tables={"people": TableOptions(rename=Rename(columns={}))}) as pipeline:
        live.wait_ready(pipeline)
        assert_functions_applied(live)
        live.sql(*PEOPLE_CHANGES.strip().split(";\n"))
        live.wait_current(pipeline)
        assert_functions_applied(live)


def test_a_function_that_fails_on_a_row_puts_its_table_aside_and_the_others_go_on(live: Live) -> None:
    live.sql(*PEOPLE.strip().split(";\n"), "DELETE FROM people WHERE n = 13")
    with live.running(transform={"people": failing_on_13}) as pipeline:
        live.wait_ready(pipeline)
        live.sql("INSERT INTO people (n) VALUES (13)", "INSERT INTO notes VALUES (77, 7)")
        status = live.wait(
            pipeline,
            lambda now: any(one.phase == "errored" for one in now.tables),
            "the table is put aside",
        )
        failed = next(one for one in status.tables if one.phase == "errored")
        assert str(failed.name) == "public.people"
        live.wait_current(pipeline, "public.notes")
        (report,) = live.heard.failed
        assert report.error is not None
        assert report.error.code == "table.transform_failed"
        assert "unlucky" not in str(report.error)
        assert rows_in(live.file, "SELECT n FROM public.notes WHERE id = 77") == [(7,)]
        hint = report.error.hint
    # As the hint says.
    assert "Correct the function" in hint and "`walrelay resync` the table" in hint
    with live.running(transform={"people": shortened}) as pipeline:
        pipeline.resync("people")
        live.wait_current(pipeline)
        assert rows_in(live.file, "SELECT count(*) FROM public.people WHERE n = 130") == [(1,)]


@pytest.mark.parametrize(
    ("table", "function", "said"),
    [
        ("people", lambda rows: rows.where("n > 3"), "row for each row .*Filter"),
        ("people", lambda rows: rows.limit(3), "row for each row"),
        (
            "people",
            lambda rows: rows.select("*", explode(array(lit(1), lit(2))).alias("x")),
            "row for each",
        ),
        ("people", lambda rows: rows.drop("id"), "drops or changes id"),
        ("people", lambda rows: rows.withColumn("id", lower("id")), "drops or changes id"),
        ("people", lambda rows: rows.withColumn("x", col("nowhere")), "the function fails"),
        ("people", lambda rows: 1 / 0, "the function fails .ZeroDivisionError"),
        ("people", lambda rows: rows.withColumn("x", create_map("name", "name")), "comes out as map"),
        (
            "notes",
            lambda rows: rows.withColumn("x", length("body")),
            "reads body, which Postgres does not send",
        ),
    ],
)
def test_functions_that_cannot_be_applied_to_changes_are_refused_at_start(
    live: Live, table: str, function: Any, said: str
) -> None:
    live.sql(*PEOPLE.strip().split(";\n"))
    with pytest.raises(TableOptionError, match=said):
        live.pipeline(transform={table: function}).run(until="caught-up")
    assert not live.file.exists()
