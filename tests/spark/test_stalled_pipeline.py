"""Connections that stall while a pipeline copies: it recovers by itself, and can be stopped meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import duckdb
import psycopg
import pytest

from tests.spark.live_kit import Live
from walrelay.config.settings import copy_settings
from walrelay.postgres.source import PostgresSource
from walrelay.testing.proxy import FaultProxy

pytestmark = pytest.mark.spark
ROWS = 300_000
COPYING = "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = current_database() AND tuples_processed > 1000"


@pytest.fixture
def proxy(live: Live) -> Iterator[FaultProxy]:
    live.sql(
        "CREATE TABLE large (id int PRIMARY KEY, filler text)",
        "CREATE TABLE small (id int PRIMARY KEY)",
        f"INSERT INTO large SELECT g, repeat('x', 300) FROM generate_series(1, {ROWS}) g",
        "INSERT INTO small VALUES (1)",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    parts = urlsplit(live.url)
    assert parts.hostname is not None and parts.port is not None
    with FaultProxy(parts.hostname, parts.port) as proxy:
        live.source = PostgresSource(proxy.url(live.url) + "?connect_timeout=2", publication="p")
        yield proxy


def wait_for_copy(url: str) -> None:
    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(COPYING).fetchone() == (0,):
            assert time.monotonic() < deadline, "no copy begins"
            time.sleep(0.002)


def test_tables_arrive_although_every_connection_stalled_during_the_copy(live: Live, proxy: FaultProxy) -> None:
    pipeline = live.pipeline(settings=copy_settings(retry_delay=0.05, stall_timeout=1))
    pipeline.start(until="caught-up")
    try:
        wait_for_copy(live.url)
        proxy.stall()
        assert pipeline.wait(180) is not None, f"it still waits; it said {live.heard.notices}"
    finally:
        proxy.resume()
        pipeline.shutdown()
    assert "public.large" in live.heard.retried
    assert any("stalled" in notice for notice in live.heard.notices), live.heard.notices
    with duckdb.connect(str(live.file), read_only=True) as destination:
        assert destination.execute("SELECT count(*), count(DISTINCT id) FROM public.large").fetchone() == (ROWS, ROWS)
        assert destination.execute("SELECT count(*) FROM public.small").fetchone() == (1,)


def test_a_pipeline_whose_connections_stalled_can_be_stopped(live: Live, proxy: FaultProxy) -> None:
    """With the default, half a minute of silence, so that nothing but the stop ends it."""
    pipeline = live.pipeline()
    pipeline.start()
    try:
        wait_for_copy(live.url)
        proxy.pause()
        pipeline.shutdown()
        assert pipeline.wait(60) is not None, "it does not end"
    finally:
        proxy.resume()
