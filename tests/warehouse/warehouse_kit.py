"""Warehouses as tests see them: written by a pipeline, read by the services' own clients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from tests.lake.lake_kit import Notices
from tests.warehouse.bigquery_kit import BigQueryPlace
from tests.warehouse.snowflake_kit import SnowflakePlace
from walrelay import Pipeline, PostgresSource, SqliteStore
from walrelay.config.settings import CopySettings
from walrelay.testing.replay import postgres_text
from walrelay.verify.report import VerifyReport

Place = BigQueryPlace | SnowflakePlace


def pipeline_into(
    place: Place,
    directory: Path,
    url: str,
    slot: str,
    spark: SparkSession,
    notices: Notices,
    store: SqliteStore,
    settings: CopySettings | None = None,
) -> Pipeline:
    return Pipeline(
        PostgresSource(url, publication="p"),
        place.destination(),
        store,
        mode="both",
        spark=spark,
        settings=settings,
        listener=notices,
        id="killed",
        log=directory / "log",
        slot=slot,
    )


def catch_up(
    place: Place, directory: Path, url: str, slot: str, spark: SparkSession, settings: CopySettings | None = None
) -> Notices:
    """Runs the pipeline whose state and log are in the directory until it has caught up; what it said."""
    store, notices = SqliteStore(directory / "state.sqlite", "killed"), Notices()
    try:
        pipeline = pipeline_into(place, directory, url, slot, spark, notices, store, settings)
        notices.treated = dict(pipeline.run("caught-up").treated)
    finally:
        store.close()
    return notices


def verified(place: Place, directory: Path, url: str, slot: str, spark: SparkSession) -> VerifyReport:
    """What `verify` says while nothing runs."""
    store = SqliteStore(directory / "state.sqlite", "killed")
    try:
        return pipeline_into(place, directory, url, slot, spark, Notices(), store).verify()
    finally:
        store.close()


def assert_same(source: psycopg.Connection[Any], place: Place, tables: tuple[str, ...], after: str = "") -> None:
    """Row by row, as text, by the clients of both sides."""
    for table in tables:
        with source.cursor(row_factory=dict_row) as cursor:
            wanted = cursor.execute(f"SELECT * FROM {table}".encode()).fetchall()
        there, here = ([_plain(row) for row in rows] for rows in (wanted, place.held(table)))
        missing, extra = Counter(there) - Counter(here), Counter(here) - Counter(there)
        assert not missing and not extra, f"after {after}, {table}: missing {missing}, too many {extra}"


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((name, None if value is None else _text(value)) for name, value in sorted(row.items()))


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else postgres_text(value)
