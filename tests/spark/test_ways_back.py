"""Who fails is announced, and there is always a way back: by itself, by a command, or by the next start (SEMANTICS 25
and 26)."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import psycopg
import pytest

from tests.spark.live_kit import Live, phases, table
from walrelay.config.settings import copy_settings
from walrelay.control.agreement import compare
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.errors import CopyFailedError, PausedError
from walrelay.testing.faults import FaultyDestination, LastingFaultError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def shop(live: Live) -> Iterator[Live]:
    live.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'o' || g FROM generate_series(1, 500) AS g",
        "INSERT INTO items SELECT g, 'i' || g FROM generate_series(1, 500) AS g",
        "CREATE PUBLICATION p FOR TABLE orders, items",
    )
    yield live
    live.close()


def assert_equal(shop: Live) -> None:
    assert all(one.agrees for one in compare(shop.source, shop.file))


def test_a_table_that_fails_while_changes_are_applied_is_announced_at_once_and_at_the_end(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    with shop.running(destination) as pipeline:
        shop.wait_current(pipeline)
        destination.reject("write_events", table="public.orders", error=LastingFaultError)
        shop.sql("INSERT INTO orders VALUES (1001, 'fails')", "INSERT INTO items VALUES (1001, 'goes on')")
        shop.wait(pipeline, lambda _: bool(shop.heard.failed), "somebody is told")
        assert [(str(one.name), one.error.code) for one in shop.heard.failed if one.error] == [
            ("public.orders", "testing.lasting_fault")
        ]
        shop.wait_current(pipeline, "public.items")
    # The next run tries it again; while it fails, that is no success.
    broken = FaultyDestination(DuckDBDestination(shop.file))
    broken.reject("write_events", table="public.orders", error=LastingFaultError)
    with pytest.raises(CopyFailedError) as caught:
        shop.pipeline(broken).run(until="caught-up")
    assert [str(one.name) for one in caught.value.summary.failed] == ["public.orders"]
    assert shop.pipeline().run(until="caught-up").failed == ()
    assert_equal(shop)


def test_a_right_that_is_granted_again_brings_the_table_back_without_a_restart(shop: Live) -> None:
    shop.sql("CREATE ROLE reader LOGIN REPLICATION", "GRANT SELECT ON orders TO reader")
    shop.source = type(shop.source)(shop.url.replace("postgres@", "reader@"), publication="p")
    settings = copy_settings(retry_delay=0.05, retries=1, late_retry_delay=0.2)
    try:
        with shop.running(settings=settings) as pipeline:
            status = shop.wait(pipeline, lambda _: phases(pipeline).get("public.items") == "errored", "it fails")
            assert "permission denied" in str(table(status, "public.items").reason)
            shop.wait_ready(pipeline, "public.orders")
            assert {one.error.code for one in shop.heard.failed if one.error} == {"source.missing_rights"}
            assert len(shop.heard.failed) == 1, "told once, although it is tried again and again"
            shop.sql("GRANT SELECT ON items TO reader")
            shop.wait_current(pipeline)
            assert_equal(shop)
            assert pipeline._live is not None
            assert not [one for one in pipeline._live.reports if one.error], "what is over is not told at the end"
    finally:
        shop.sql("REASSIGN OWNED BY reader TO postgres", "DROP OWNED BY reader", "DROP ROLE reader")


def test_tables_are_copied_again_and_rolled_back_while_the_pipeline_runs_and_by_the_next_start(shop: Live) -> None:
    shop.pipeline().run(until="caught-up")
    with duckdb.connect(str(shop.file)) as file:  # somebody spoils it
        file.execute("UPDATE public.orders SET note = 'wrong' WHERE id = 7")
    with shop.running() as pipeline:
        shop.wait_current(pipeline)
        pipeline.resync("orders")
        shop.wait(pipeline, lambda _: "public.orders" in shop.heard.started, "it is copied again")
        shop.sql("UPDATE orders SET note = 'later' WHERE id = 8")
        shop.wait_current(pipeline)
        assert_equal(shop)
        pipeline.rollback("items")
        shop.wait(pipeline, lambda _: any("is back in the phase" in one for one in shop.heard.notices), "it went back")
        shop.sql("UPDATE items SET note = 'later' WHERE id = 8")
        shop.wait_current(pipeline)
        assert_equal(shop)
        assert shop.heard.started == ["public.orders"], "one phase back is no copy"
    shop.pipeline().resync()
    shop.pipeline().run(until="caught-up")
    assert sorted(shop.heard.started) == ["public.items", "public.orders"]
    assert_equal(shop)


def test_a_paused_pipeline_writes_nothing_until_it_is_resumed(shop: Live) -> None:
    with shop.running() as pipeline:
        shop.wait_current(pipeline)
        pipeline.pause()
        shop.wait(pipeline, lambda status: status.paused, "it pauses")
        shop.sql("INSERT INTO orders VALUES (1001, 'while it pauses')")
        log = shop.wait_logged(pipeline)
        status = pipeline.status()
        assert status is not None and status.position is not None and status.position < log.end()
    with pytest.raises(PausedError):
        shop.pipeline().run(until="caught-up")
    with shop.running() as pipeline:
        shop.wait(pipeline, lambda status: status.paused, "it still pauses")
        pipeline.resume()
        shop.wait_current(pipeline)
        assert_equal(shop)


def test_a_copy_whose_snapshot_was_ended_is_made_again(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    held = destination.hold("drop_table_for_copy", table="public.orders", times=1)
    with shop.running(destination) as pipeline:
        assert held.reached.wait(180)
        with psycopg.connect(shop.url, autocommit=True) as other:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s"
            other.execute(ended, ("walrelay % snapshot",))
        held.release()
        shop.wait_current(pipeline)
        assert_equal(shop)
        assert "public.orders" in shop.heard.retried
