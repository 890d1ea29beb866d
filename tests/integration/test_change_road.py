"""What is captured, read back from the log, is exactly what Postgres holds (SEMANTICS 1, 2, 13–19)."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from tests.repetitions import some
from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.log.reader import LogReader
from walrelay.postgres.slot import find_slot, flushed_lsn
from walrelay.postgres.source import PostgresSource
from walrelay.testing.capturing import capturing
from walrelay.testing.replay import replay
from walrelay.testing.workload import DDL_KINDS, Workload

pytestmark = pytest.mark.postgres
IDLE_PATIENCE = 150.0


def streaming_early(url: str) -> PostgresSource:
    """A source whose server streams every transaction of more than 64 kB while it runs."""
    extra = urllib.parse.quote("-c logical_decoding_work_mem=64kB")
    return PostgresSource(f"{url}{'&' if '?' in url else '?'}options={extra}", publication="p")


def capture_all(url: str, log: Path, *, slot: str, **settings: object) -> Capture:
    """Capture everything committed so far."""
    capture = Capture(streaming_early(url), slot=slot, log=log, settings=capture_settings(**settings))
    capture.run(until="caught-up")
    return capture


@pytest.mark.parametrize("seed", some([1, 2], [1, 2, 3]))
def test_every_sample_of_a_wild_workload_is_found_in_the_log(database: str, tmp_path: Path, seed: int) -> None:
    """Concurrent clients; savepoints, aborts, large transactions, key changes, truncates, DDL; samples all along."""
    workload = Workload(database, seed=seed, clients=4, large_rows=12_000, ddl=DDL_KINDS if seed != 2 else ())
    samples = []
    log = tmp_path / "log"
    slot = f"wild_{seed}_{threading.get_native_id()}"
    settings = {"segment_bytes": 256 * 1024, "memory_bytes": 1024 * 1024}
    with psycopg.connect(database, autocommit=True) as connection:
        workload.create(connection)
        capture_all(database, log, slot=slot, **settings)
        capture = Capture(streaming_early(database), slot=slot, log=log, settings=capture_settings(**settings))
        with capturing(capture), workload.running():
            for _ in range(8):
                samples.append(workload.sample(connection))
        workload.run(transactions=2500)
        samples.append(workload.sample(connection))
        last = capture_all(database, log, slot=slot, **settings).status()
        assert last.large_transactions > 10 and last.spilled_bytes > 0, "the workload has transactions that spill"
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    reader = LogReader(log)
    changes = list(reader.changes())
    positions = [(change.commit_lsn, change.ordinal) for change in changes]
    assert positions == sorted(set(positions)), "in order, and each position once"
    for sample in samples:
        assert replay(changes, workload.keys, sample).differences(sample) == []
    assert len({change.xid for change in changes}) > 1000


@pytest.mark.slow
def test_an_idle_publication_beside_a_busy_table_holds_back_no_wal(database: str, tmp_path: Path) -> None:
    """SEMANTICS 6. The slot's restart point moves with the server's own records: it makes one every 15 s or so, or when
    somebody asks."""
    slot = f"idle_{threading.get_native_id()}"
    with psycopg.connect(database, autocommit=True, row_factory=namedtuple_row) as connection:
        connection.execute("CREATE TABLE quiet (id int); CREATE TABLE busy (id int, body text)")
        connection.execute("CREATE PUBLICATION p FOR TABLE quiet")
        capture = Capture(PostgresSource(database, publication="p"), slot=slot, log=tmp_path / "log")
        with capturing(capture):
            _until(lambda: find_slot(connection, slot) is not None and capture.status().state == "streaming")
            begun, written = time.monotonic(), 0
            behind, retained = [], []
            start = flushed_lsn(connection)
            while not (written > 20_000_000 and retained[-1] < written / 2):
                assert time.monotonic() - begun < IDLE_PATIENCE, "what is kept back grows with what is written"
                connection.execute("INSERT INTO busy SELECT g, repeat('x', 1000) FROM generate_series(1, 500) g")
                connection.execute("SELECT pg_log_standby_snapshot()")
                time.sleep(0.05)
                found = find_slot(connection, slot)
                assert found is not None
                behind.append(found.behind_bytes)
                retained.append(found.retained_bytes)
                written = flushed_lsn(connection) - start
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    assert sorted(behind)[len(behind) * 9 // 10] < written / 10, "confirmed follows within seconds"
    assert LogReader(tmp_path / "log").entries() == [], "and nothing was logged for it"


def _until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
