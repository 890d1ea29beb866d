"""Samples of transaction numbers, taken from a busy server, are true of every transaction that the log holds."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg
import pytest

from tests.server_kit import wait_for
from walrelay.capture.capture import Capture
from walrelay.capture.xid_samples import take_sample
from walrelay.config.settings import capture_settings
from walrelay.log.reader import LogReader
from walrelay.log.xids import XidSample, catch_up_start, read_samples
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import drop_slot, flushed_lsn
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres
SAMPLES = 150


class Client(threading.Thread):
    """Transactions of every length, with savepoints, some rolled back, committed in every way."""

    def __init__(self, url: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._random = random.Random(seed)
        self._halt = stop
        self.failure: BaseException | None = None

    def run(self) -> None:
        chance = self._random
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._halt.wait(chance.choice([0.0, 0.0, 0.01])):
                    connection.execute("BEGIN")
                    connection.execute("SET LOCAL synchronous_commit = " + chance.choice(["on", "off", "local"]))
                    connection.execute("INSERT INTO items VALUES (pg_current_xact_id()::text::int8)")
                    connection.execute("SAVEPOINT s")
                    connection.execute("INSERT INTO items VALUES (-1)")
                    connection.execute(chance.choice(["RELEASE s", "ROLLBACK TO s"]))
                    self._halt.wait(chance.choice([0.0, 0.0, 0.02, 0.2]))
                    connection.execute(chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
        except BaseException as error:
            self.failure = error


def test_samples_are_true_of_every_logged_transaction(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (xid int8)")
        connection.execute("CREATE PUBLICATION p FOR TABLE items")
    source = PostgresSource(database, publication="p")
    slot = f"xids_{database.rpartition('_')[2]}"
    capture = Capture(source, slot=slot, log=tmp_path / "log", settings=capture_settings(ack="log"))
    capturing = threading.Thread(target=capture.run, daemon=True)
    capturing.start()
    wait_for((tmp_path / "log" / "log.json").exists, "the log is there")
    log = LogReader(tmp_path / "log")
    stop = threading.Event()
    clients = [Client(database, seed, stop) for seed in range(4)]
    for client in clients:
        client.start()
    samples: list[XidSample] = []
    snapshots: list[str] = []
    with connect(source) as connection:
        while len(samples) < SAMPLES:
            sample = take_sample(connection)
            assert sample is not None
            samples.append(sample)
            row = connection.execute("SELECT pg_current_snapshot()::text AS visible").fetchone()
            assert row is not None
            snapshots.append(row.visible)
    stop.set()
    for client in clients:
        client.join()
    assert [client.failure for client in clients if client.failure] == []
    with connect(source) as connection:
        end = flushed_lsn(connection)
        wait_for(lambda: log.head() >= end, "everything is in the log")
        capture.stop()
        capturing.join(30)
        drop_slot(connection, slot)
    ended = {c.row["xid"]: c.end_lsn for c in log.changes() if c.row is not None and c.row["xid"] > 0}
    assert len(ended) > 5
    first, *more = read_samples(log.storage)
    assert first.lsn == log.lineage().created_lsn, "one for the new log"
    for sample in (first, *more, *samples):
        assert [xid for xid, lsn in ended.items() if lsn <= sample.lsn and xid >= sample.below] == []
        assert [xid for xid, lsn in ended.items() if lsn > sample.lsn and xid < sample.least] == []
    for visible in snapshots:
        start = catch_up_start([first, *samples], log.start(), visible)
        xmin = int(visible.split(":")[0])
        assert all(xid < xmin for xid, lsn in ended.items() if lsn <= start), "all of it is in the copy"
    assert any(catch_up_start([first, *samples], log.start(), visible) > log.start() for visible in snapshots)
