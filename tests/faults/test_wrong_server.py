"""A server that is not what the log has come from: put back to an older state, or promoted while it was behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.faults.test_capture_refusals import captured, insert, prepare, run
from tests.repetitions import some
from tests.server_kit import put_back, save
from walrelay.errors import LogAheadError, SourcePutBackError
from walrelay.log.identity import read_lineage
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SLOT = "shop"


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"shared_buffers": "32MB", "restore_command": "false"}) as running:
        prepare(running.url)
        with psycopg.connect(running.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE unpublished (id int)")
        yield running


@pytest.fixture
def disk(server: EmbeddedPostgres) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="walrelay-disk-", dir="/tmp") as directory:
        yield Path(directory) / "data"


def work(url: str, rows: int) -> None:
    """WAL without anything for the log."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("INSERT INTO unpublished SELECT generate_series(1, %s)", (rows,))


def end_of(url: str) -> Lsn:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def confirmed(url: str, slot: str = SLOT) -> Lsn:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (slot,)
        ).fetchone()
    assert row is not None
    return Lsn.parse(row[0])


# ---------------------------------------------------------------------------------------------- put back to older


def test_a_server_that_was_put_back_is_refused(server: EmbeddedPostgres, disk: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(server.url, log, SLOT)
    insert(server.url, 1)
    run(server.url, log, SLOT)
    save(server, disk)
    work(server.url, 5_000)
    insert(server.url, 2)
    run(server.url, log, SLOT)
    held = LogReader(log).head()
    put_back(server, disk)
    before = confirmed(server.url)
    insert(server.url, 3)
    with pytest.raises(SourcePutBackError) as caught:
        run(server.url, log, SLOT)
    assert caught.value.code == "source.put_back" and str(held) in caught.value.message
    assert "begins with another --slot and another --log" in caught.value.hint
    assert captured(log) == [1, 2] and LogReader(log).head() == held, "the log is as it was"
    assert confirmed(server.url) == before, "and so is the slot"
    run(server.url, tmp_path / "another", f"{SLOT}_2")  # what the hint says
    insert(server.url, 4)
    run(server.url, tmp_path / "another", f"{SLOT}_2")
    assert captured(tmp_path / "another") == [4]


@pytest.mark.parametrize("rows", some([1, 40_000], [1, 7, 40_000]))
def test_a_server_that_was_put_back_and_has_gone_on_is_refused(
    server: EmbeddedPostgres, disk: Path, tmp_path: Path, rows: int
) -> None:
    """Its WAL is longer than the log by now; but what the log holds last is not in it."""
    log = tmp_path / "log"
    run(server.url, log, SLOT)
    insert(server.url, 1)
    run(server.url, log, SLOT)
    save(server, disk)
    insert(server.url, 2)
    run(server.url, log, SLOT)
    held = LogReader(log).head()
    put_back(server, disk)
    work(server.url, rows)
    while end_of(server.url) <= held + 10_000:
        insert(server.url, *range(end_of(server.url) % 1_000_000_000, end_of(server.url) % 1_000_000_000 + 10))
    before = confirmed(server.url)
    for _ in range(2):
        with pytest.raises(SourcePutBackError, match="in its place") as caught:
            run(server.url, log, SLOT)
    assert caught.value.code == "source.put_back"
    assert captured(log) == [1, 2] and LogReader(log).head() == held, "the log is as it was"
    assert confirmed(server.url) == before, "and so is the slot"


MEANWHILE = (
    "INSERT INTO items VALUES (1001)",
    "INSERT INTO unpublished VALUES (1)",
    "SELECT pg_logical_emit_message(false, 'other', 'outside of a transaction')",
    "SELECT pg_logical_emit_message(true, 'other', 'within one')",
    "ALTER PUBLICATION p ADD TABLE unpublished",
    "ALTER PUBLICATION p DROP TABLE items; ALTER PUBLICATION p ADD TABLE unpublished",
    "ALTER PUBLICATION p SET (publish = 'delete')",
    "DROP TABLE items; CREATE TABLE items (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE items",
    "ALTER TABLE items ADD COLUMN more text DEFAULT 'x'",
    "TRUNCATE items",
    "INSERT INTO items SELECT generate_series(10000, 200000)",
    "SELECT pg_switch_wal(); CHECKPOINT",
)


def test_a_healthy_server_is_asked_for_the_last_transaction_and_goes_on(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """With ack=destination and no reader the slot stays where it was made, so that all could be sent again.

    A database, a slot and a log for each of what may happen; one crash of the server for all of them.
    """
    places: dict[str, Lsn] = {}
    urls: dict[str, str] = {}
    for number, meanwhile in enumerate(MEANWHILE):
        slot = f"{SLOT}_{number}"
        url = urls[slot] = server.create_database(slot)
        prepare(url)
        run(url, tmp_path / slot, slot, ack="destination")
        insert(url, 1, 2, 3)
        run(url, tmp_path / slot, slot, ack="destination")
        places[slot] = confirmed(url, slot)
        assert places[slot] <= LogReader(tmp_path / slot).entries()[-1].start_lsn, meanwhile
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE unpublished (id int)")
            connection.execute("SET synchronous_commit = on")
            for statement in meanwhile.split("; "):
                connection.execute(statement)
    server.stop("immediate")
    server.start()
    for slot, meanwhile in zip(places, MEANWHILE, strict=True):
        log = tmp_path / slot
        for _ in range(2):
            run(urls[slot], log, slot, ack="destination")
        if "INSERT INTO items SELECT" in meanwhile:
            assert len(captured(log)) == 3 + 190_001
        else:
            assert captured(log)[:3] == [1, 2, 3], meanwhile
        assert confirmed(urls[slot], slot) == places[slot], meanwhile


def test_a_server_that_was_only_restarted_is_none_that_was_put_back(server: EmbeddedPostgres, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for item in range(6):
        run(server.url, log, SLOT)
        insert(server.url, item)
        if item % 2:
            run(server.url, log, SLOT)
        server.stop("immediate" if item % 3 else "fast")
        server.start()
        if item == 3:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("SELECT pg_switch_wal()")
    run(server.url, log, SLOT)
    assert captured(log) == list(range(6))


# ---------------------------------------------------------------------------------------------- promoted too early


def test_a_promoted_server_that_is_behind_the_log_is_refused(
    server: EmbeddedPostgres, disk: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run(server.url, log, SLOT)
    insert(server.url, 1)
    run(server.url, log, SLOT)
    save(server, disk)
    insert(server.url, 2)
    run(server.url, log, SLOT)
    before = read_lineage(LogReader(log).storage)
    assert before is not None
    put_back(server, disk, promoted=True)
    insert(server.url, *range(3, 300))
    now = before.timeline + 1
    for _ in range(2):
        with pytest.raises(LogAheadError) as caught:
            run(server.url, log, SLOT, accept_timeline=now)
    assert caught.value.code == "source.log_ahead" and f"timeline {now}" in caught.value.message
    assert "begins with another --slot and another --log" in caught.value.hint
    assert captured(log) == [1, 2] and read_lineage(LogReader(log).storage) == before
    run(server.url, tmp_path / "another", f"{SLOT}_2")  # what the hint says
    insert(server.url, 300)
    run(server.url, tmp_path / "another", f"{SLOT}_2")
    assert captured(tmp_path / "another") == [300]


def test_an_idle_head_beyond_the_promotion_goes_back_so_that_nothing_is_skipped(
    server: EmbeddedPostgres, disk: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run(server.url, log, SLOT)
    insert(server.url, 1)
    run(server.url, log, SLOT)
    save(server, disk)
    work(server.url, 20_000)
    run(server.url, log, SLOT)
    head = LogReader(log).head()
    put_back(server, disk, promoted=True)
    insert(server.url, 2)
    run(server.url, log, SLOT, accept_timeline=2)
    assert LogReader(log).end() < head, "it was committed where the log said that it holds all"
    assert captured(log) == [1, 2]
    insert(server.url, 3)
    run(server.url, log, SLOT)
    assert captured(log) == [1, 2, 3]
