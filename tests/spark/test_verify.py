"""A pipeline compares what it keeps current, while it runs, and mends it (docs/how-to/verify.md)."""

from __future__ import annotations

import duckdb
import pytest

from tests.spark.live_kit import Live

pytestmark = pytest.mark.postgres


def test_running_pipeline_finds_and_mends_what_was_changed_behind_its_back(live: Live) -> None:
    live.sql(
        "CREATE TABLE things (id int PRIMARY KEY, name text)",
        "CREATE TABLE loose (name text)",
        "INSERT INTO things SELECT i, 'name ' || i FROM generate_series(1, 1000) AS i",
        "INSERT INTO loose SELECT 'name' FROM generate_series(1, 10)",
        "CREATE PUBLICATION p FOR TABLE things, loose",
    )
    with live.running() as pipeline:
        live.wait_ready(pipeline)
        live.sql("UPDATE things SET name = 'new' WHERE id < 10")
        report = pipeline.verify()
        assert report.exit_code == 0, report.to_json()
        assert [one.rows for one in report.tables] == [10, 1000]
    with duckdb.connect(str(live.file)) as connection:
        connection.execute("UPDATE public.things SET name = '' WHERE id = 7; INSERT INTO public.loose VALUES ('name')")
    with live.running() as pipeline:
        live.wait_ready(pipeline)
        found = pipeline.verify()
        assert [[str(row) for row in one.differences] for one in found.tables][1] == ["(id = 7) differs in name"]
        assert found.tables[0].differences[0].destination_rows == 11
        mended = pipeline.verify(repair=True)
        assert mended.exit_code == 0, mended.to_json()
        live.sql("UPDATE things SET name = name || '!' WHERE id < 10")
        assert pipeline.verify(["things"]).exit_code == 0
