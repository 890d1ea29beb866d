"""What Postgres holds after a wild workload is what DuckDB holds, however the log was cut (SEMANTICS 13–18)."""

from __future__ import annotations

import random
import re
import threading
import uuid
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from walrelay.config.settings import capture_settings, copy_settings
from walrelay.control.agreement import compare
from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import DuckDBDestination
from walrelay.destinations.events import EventBatch
from walrelay.log.capture import Capture
from walrelay.log.reader import LogReader
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.postgres.source import PostgresSource
from walrelay.testing.replay import Replica, postgres_text
from walrelay.testing.sample import Sample, TableContents
from walrelay.testing.workload import DDL_KINDS, Workload

pytestmark = pytest.mark.postgres


_EXTRA = re.compile("extra_|renamed_")


def held(path: Path, workload: Workload, lsn: Lsn) -> Sample:
    """What the file holds, as if it had been sampled in Postgres.

    Of tables without a key, columns that DDL has added are left out: the log has no defaults, so the file has NULL in
    rows that were there before; which of two rows that are equal but for that goes first is nobody's to say.
    """
    tables, keyed = workload.tables, workload.keys
    found: dict[str, TableContents] = {}
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        there = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        for name in tables:
            if name.removeprefix("public.") not in there:
                continue
            table = connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            columns = tuple(sorted(name_ for name_ in table.schema.names if name in keyed or not _EXTRA.match(name_)))
            rows = [
                tuple(None if row[column] is None else _text(column, row[column]) for column in columns)
                for batch in table.to_batches()
                for row in plain_rows(batch)
            ]
            found[name] = TableContents(columns, sorted(rows, key=lambda row: [(v is not None, v) for v in row]))
    return Sample("0:0:", lsn, found)


def _text(column: str, value: Any) -> str:
    return postgres_text(uuid.UUID(value) if column == "token" and isinstance(value, str) else value)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wild_workload_in_batches_cut_anywhere(database: str, tmp_path: Path, seed: int) -> None:
    """Concurrent clients; aborts, large transactions, key changes, truncates, TOAST, DDL (not with seed 2)."""
    ddl = DDL_KINDS if seed != 2 else ()
    workload = Workload(database, seed=seed, clients=3, large_rows=5_000, ddl=ddl)
    log, slot = tmp_path / "log", f"duck_{seed}_{threading.get_native_id()}"
    source = PostgresSource(database, publication="p")
    with psycopg.connect(database, autocommit=True) as connection:
        workload.create(connection)
        for _ in range(4):
            # Some of the catalog's changes are seen late, some in time.
            Capture(source, slot=slot, log=log, settings=capture_settings(segment_bytes=128 * 1024)).run(
                until="caught-up"
            )
            workload.run(transactions=300)
        sample = workload.sample(connection)
        Capture(source, slot=slot, log=log, settings=capture_settings()).run(until="caught-up")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    reader = LogReader(log)
    changes = list(reader.changes())
    path = tmp_path / "copy.duckdb"
    take_in_pieces(reader, changes, workload, path, random.Random(seed))

    if not ddl:
        copied = held(path, workload, reader.end())
        assert copied.state() == sample.state()
        assert [str(one) for one in compare(source, path) if not one.agrees] == []


def take_in_pieces(
    reader: LogReader, changes: list[Change], workload: Workload, path: Path, rng: random.Random
) -> None:
    """Write the log to a file in random pieces, some twice or overlapping, and look at it after each."""
    destination = DuckDBDestination(path)
    destination.startup(DestinationContext("test", copy_settings()))
    replica = Replica(workload.keys)
    ends = sorted({change.end_lsn for change in changes})
    at, place = reader.start(), 0
    try:
        while at < ends[-1]:
            later = [end for end in ends if end > at]
            to = later[min(rng.choice([0, 3, 40, 400]), len(later) - 1)]
            after = at if rng.random() < 0.7 else rng.choice([reader.start(), *(end for end in ends if end <= at)])
            destination.write_events(EventBatch(reader, after, to))
            if rng.random() < 0.2:
                assert destination.write_events(EventBatch(reader, after, to)).rows == 0
            while place < len(changes) and changes[place].end_lsn <= to:
                replica.apply(changes[place])
                place += 1
            assert destination.applied_lsn(None) == to
            assert replica.differences(held(path, workload, to)) == []
            at = to
    finally:
        destination.shutdown()
