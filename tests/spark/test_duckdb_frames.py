"""DuckDB holds the same tables whether it reads the log's files itself or Spark has collapsed them before."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import duckdb
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.histories import TABLES, SmallLog, write_history
from tests.repetitions import some
from tests.unit.test_duckdb_collapse import contents, found
from walrelay import DuckDBDestination, Pipeline, PostgresSource, SqliteStore
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import frame_lane


@pytest.mark.parametrize("kind", some(["full without key"], list(TABLES)))
def test_random_histories_through_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng = random.Random(f"{kind} into DuckDB as frames")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=some(24, 60))
    destination = DuckDBDestination(tmp_path / "copy.duckdb", lane="frames")
    destination.startup(DestinationContext("test", copy_settings(), spark=lambda: spark))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(some(2, 8)))})):
        destination.write_events(log.batch(ends[low], ends[high]))
        assert destination.write_events(log.batch(ends[low], ends[high])).rows == 0
        for schema, rows, number in states[ends[high]]:
            if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= ends[high]:
                assert found(destination.path, schema) == contents(schema, rows), (schema.name, ends[high])
    destination.shutdown()


TYPED = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a uuid, b time);
CREATE TABLE typed (
    id uuid PRIMARY KEY, at time, times time[], keys uuid[], paid numeric(8, 2), any_number numeric, made timestamp,
    seen timestamptz, day date, took interval, tooks interval[], span tstzrange, feels mood, both_of pair, raw bytea,
    doc jsonb, ratio float8
);
CREATE TABLE loose (n int, f float8, at time);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE typed, loose;
INSERT INTO loose VALUES (1, '-0.0', '24:00'), (1, '-0.0', '24:00'), (1, '0.0', NULL);
"""
ROW = """
INSERT INTO typed SELECT md5(g::text)::uuid, make_time(g % 24, 0, g / 7.0), ARRAY['24:00', NULL, '00:00:00.5']::time[],
    ARRAY[md5('x')::uuid, NULL], g / 3.0, g / 7.0,
    CASE g % 3 WHEN 0 THEN timestamp 'infinity' WHEN 1 THEN '-infinity' ELSE '2020-01-01 00:00:00.123456' END,
    CASE g % 3 WHEN 0 THEN timestamptz 'infinity' WHEN 1 THEN '4713-01-01 BC' ELSE '0001-02-03 04:05:06.7Z' END,
    CASE g % 2 WHEN 0 THEN date '-infinity' ELSE '1582-10-10' END, interval '-1 month 3 days -0.5 s',
    ARRAY[interval '1 year', NULL], tstzrange('2020-01-01Z', NULL, '(]'), 'ok',
    ROW(md5('y')::uuid, time '23:59:59.999999')::pair,
    decode(md5(g::text), 'hex'), jsonb_build_object('n', g), '-0.0'
  FROM generate_series({}, {}) g
"""
CHANGES = (
    ROW.format(11, 40),
    "UPDATE typed SET at = '24:00', both_of = NULL WHERE id::text < '7'",
    "DELETE FROM typed WHERE id::text > 'e'",
    "DELETE FROM loose WHERE ctid = (SELECT min(ctid) FROM loose)",
    "INSERT INTO loose VALUES (2, 'NaN', '00:00:00.000001')",
)


def test_every_type_comes_through_spark_as_it_comes_without(
    database: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed: list[str] = []
    run = uuid4().hex[:12]
    made = frame_lane.left_to_do
    monkeypatch.setattr(frame_lane, "left_to_do", lambda frames: landed.append(str(frames.schema.name)) or made(frames))
    with psycopg.connect(database, autocommit=True) as source:
        source.execute(TYPED)
        source.execute(ROW.format(1, 10))  # type: ignore[call-overload]
        for changes in ((), CHANGES):
            for statement in changes:
                source.execute(statement)  # type: ignore[call-overload]
            for lane in ("files", "frames"):
                with closing(SqliteStore(tmp_path / f"{lane}.db", "walrelay")) as store:
                    Pipeline(
                        PostgresSource(database, publication="p"),
                        DuckDBDestination(tmp_path / f"{lane}.duckdb", lane=lane),  # type: ignore[arg-type]
                        store,
                        mode="both",
                        spark=spark,
                        log=tmp_path / f"{lane}-log",
                        slot=f"{lane}_{run}",
                    ).run("caught-up")
        source.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    assert sorted(set(landed)) == ["public.loose", "public.typed"], "Spark has collapsed them"
    with duckdb.connect(str(tmp_path / "files.duckdb"), read_only=True) as reader:
        reader.execute(f"ATTACH '{tmp_path / 'frames.duckdb'}' AS other (READ_ONLY)")
        for table in ("typed", "loose"):
            mine, other = f"public.{table}", f"other.public.{table}"
            assert reader.execute(f"DESCRIBE {mine}").fetchall() == reader.execute(f"DESCRIBE {other}").fetchall()
            rows = [
                sorted(map(str, reader.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {one}").fetchall()))
                for one in (mine, other)
            ]
            assert rows[0] == rows[1] and rows[0]
