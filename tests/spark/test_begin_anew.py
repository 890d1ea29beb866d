"""What was lost is made anew when that is asked for, and nothing else is; every hint is followed as it is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.faults.capture_kit import wait_until
from tests.spark.live_kit import Live, confirmed
from walrelay.control.agreement import compare
from walrelay.errors import LineageError, OtherDestinationError, PublicationMissingError, SlotError, WalrelayError
from walrelay.stores.memory import MemoryStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def shop(live: Live) -> Iterator[Live]:
    live.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'o' || g FROM generate_series(1, 200) AS g",
        "CREATE PUBLICATION p FOR TABLE orders",
    )
    live.pipeline().run(until="caught-up")
    yield live
    live.close()


def is_equal(shop: Live) -> bool:
    return all(one.agrees for one in compare(shop.source, shop.file))


def drop_slot(shop: Live) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (shop.slot,))


def fails_then_begins_anew(shop: Live, kind: type[WalrelayError], *, twice: bool = False) -> None:
    """The error says `--begin-anew`; slot and log stay as they are until that is given, and then all is well."""
    for _ in range(1 + twice):
        with pytest.raises(kind) as caught:
            shop.pipeline().run(until="caught-up")
        assert caught.value.begins_anew and "--begin-anew" in caught.value.hint
    assert not list(shop.log.parent.glob("log.set-aside-*"))
    shop.pipeline(begin_anew=True).run(until="caught-up")
    assert set(shop.heard.started) == {"public.orders"} and is_equal(shop)
    if twice:
        shop.sql("UPDATE orders SET note = note || '!' WHERE id % 7 = 0")
        # As long as nothing is lost the option does nothing.
        shop.pipeline(begin_anew=True).run(until="caught-up")
        assert shop.heard.started == [] and is_equal(shop)


def test_a_slot_that_somebody_dropped(shop: Live) -> None:
    drop_slot(shop)
    shop.sql("DELETE FROM orders WHERE id < 10", "INSERT INTO orders VALUES (1001, 'unseen')")
    fails_then_begins_anew(shop, SlotError, twice=True)
    assert (shop.log.parent / "log.set-aside-1").is_dir()


def test_a_running_pipeline_begins_anew_by_itself_whenever_its_slot_goes(
    shop: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says where it stands meanwhile, without a log."""
    monkeypatch.setattr("walrelay.pipeline.ANEW_SECONDS", 0.0)
    with shop.running(begin_anew=True) as pipeline:
        for number in (1, 2):
            shop.wait_current(pipeline)
            wait_until(lambda: taken_away(shop), "the slot is gone")
            shop.sql(f"DELETE FROM orders WHERE id = {number}")
            aside = shop.log.with_name(f"log.set-aside-{number}")
            shop.wait(pipeline, lambda _, aside=aside: aside.is_dir(), "it begins anew")  # type: ignore[misc]
        shop.wait_current(pipeline)
    assert is_equal(shop)


def taken_away(shop: Live) -> bool:
    """Whether the slot is gone: end who reads it, and drop it before he is back."""
    with psycopg.connect(shop.url, autocommit=True) as connection, suppress(psycopg.errors.ObjectInUse):
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (shop.slot,)
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (shop.slot,)
        )
        return True
    return False


def test_a_lost_log_whose_slot_has_kept_what_is_missing_needs_nobody(shop: Live) -> None:
    with shop.running() as pipeline:  # the slot goes on with what is applied
        shop.wait_current(pipeline)
        before = confirmed(shop)
        shop.sql("UPDATE orders SET note = 'seen'")
        shop.wait_current(pipeline)
        shop.wait(pipeline, lambda _: confirmed(shop) > before, "the slot moves")
    shop.sql("DELETE FROM orders WHERE id < 10")
    shutil.rmtree(shop.log)
    shop.pipeline().run(until="caught-up")
    assert shop.heard.started == [], "the table is well"
    assert any("the log was made anew; nothing is missing" in one for one in shop.heard.notices)
    assert is_equal(shop)


def test_a_lost_log_and_a_lost_slot(shop: Live) -> None:
    drop_slot(shop)
    shutil.rmtree(shop.log)
    shop.sql("DELETE FROM orders WHERE id < 10")
    fails_then_begins_anew(shop, LineageError)


def test_a_publication_that_was_dropped_and_made_again(shop: Live) -> None:
    shop.sql("DROP PUBLICATION p", "DELETE FROM orders WHERE id < 10")
    with pytest.raises(PublicationMissingError) as caught:
        shop.pipeline().run(until="caught-up")
    assert "CREATE PUBLICATION" in caught.value.hint
    shop.sql("CREATE PUBLICATION p FOR TABLE orders")
    fails_then_begins_anew(shop, SlotError)


def test_another_file_in_the_place_of_the_destination(shop: Live) -> None:
    shop.file = shop.file.with_name("another.duckdb")
    shop.pipeline(mode="copy", store=MemoryStore()).run()
    shop.sql("DELETE FROM orders WHERE id < 10")
    fails_then_begins_anew(shop, OtherDestinationError)
    assert not list(shop.log.parent.glob("log.set-aside-*")), "the log is well"
