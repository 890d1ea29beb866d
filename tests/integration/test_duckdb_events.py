"""What Postgres holds after a wild workload is what DuckDB holds, however the log was cut (SEMANTICS 13–18)."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from subprocess import PIPE
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg import sql

from tests.repetitions import some
from tests.roundtrip.compare import printed_by_postgres, read_back
from tests.roundtrip.test_types import fill
from tests.roundtrip.values import WITHOUT_BINARY, cases_of
from walrelay.capture.capture import Capture
from walrelay.changes.batch import EventBatch
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.control.agreement import compare
from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import apply as duckdb_apply
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.duckdb.dialect import quoted
from walrelay.log.reader import LogReader
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
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


@pytest.mark.parametrize("seed", some([1, 2], [1, 2, 3]))
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
            workload.run(transactions=some(150, 300))
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


@pytest.mark.parametrize("small_rows", some([0], [0, 20_000]))  # from files, and through Arrow
def test_values_of_every_type_arrive_and_their_rows_are_found_again(
    database: str, tmp_path: Path, small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserted with a key; then each row updated and deleted where only its values tell which row is meant (FULL)."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    # Capture itself cannot have the others: Postgres has no bytes for them.
    cases = [case for case in cases_of(18) if case not in WITHOUT_BINARY]
    slot, log = f"types_{threading.get_native_id()}", tmp_path / "log"
    source = PostgresSource(database, publication="p")
    destination = DuckDBDestination(tmp_path / "copy.duckdb")
    destination.startup(DestinationContext("test", copy_settings()))
    with psycopg.connect(database, autocommit=True) as connection:
        fill(connection, 18)
        tables = sql.SQL(", ").join(sql.Identifier(case.table) for case in cases)
        connection.execute(sql.SQL("CREATE PUBLICATION p FOR TABLE {}").format(tables))
        Capture(source, slot=slot, log=log).run(until="caught-up")
        reader = LogReader(log)
        again = "CREATE TEMP TABLE kept AS TABLE {0}; TRUNCATE {0}; INSERT INTO {0} TABLE kept; DROP TABLE kept"
        for case in cases:
            connection.execute(sql.SQL(again).format(sql.Identifier(case.table)))
        Capture(source, slot=slot, log=log).run(until="caught-up")
        first = reader.end()
        destination.write_events(EventBatch(reader, reader.start(), first))
        versions = reader.tables()
        with duckdb.connect(str(destination.path), read_only=True) as copies:
            for case in cases:
                name = TableName("public", case.table)
                if not case.altered:
                    found = read_back(copies, name, versions[name].schema.column("value"))
                    assert found == printed_by_postgres(connection, name, case.printed), case.id
        for case in cases:
            table = sql.Identifier(case.table)
            connection.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table))
            connection.execute(
                sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, _key_of(connection, case.table))
            )
            connection.execute(sql.SQL("UPDATE {} SET id = id + 1000 WHERE id % 2 = 0").format(table))
            connection.execute(sql.SQL("DELETE FROM {} WHERE id % 3 > 0").format(table))
        Capture(source, slot=slot, log=log).run(until="caught-up")
        destination.write_events(EventBatch(reader, first, reader.end()))
        with duckdb.connect(str(destination.path), read_only=True) as copies:
            for case in cases:
                asked = sql.SQL("SELECT id FROM {} ORDER BY id").format(sql.Identifier(case.table))
                found = copies.execute(f"SELECT id FROM public.{quoted(case.table)} ORDER BY id").fetchall()
                assert found == connection.execute(asked).fetchall(), case.id
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    destination.shutdown()


def _key_of(connection: psycopg.Connection[Any], table: str) -> sql.Identifier:
    row = connection.execute(
        "SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = %s::regclass", (f'public."{table}"',)
    ).fetchone()
    assert row is not None
    return sql.Identifier(row[0])


def test_a_reader_that_polls_never_sees_half_a_batch(database: str, tmp_path: Path) -> None:
    """Both tables of a transfer stand at one commit; whoever meets the file while it is written tries again."""
    workload = Workload(database, seed=5, clients=2, large_rows=0)
    log, slot = tmp_path / "log", f"polled_{threading.get_native_id()}"
    source = PostgresSource(database, publication="p")
    with psycopg.connect(database, autocommit=True) as connection:
        workload.create(connection)
        Capture(source, slot=slot, log=log).run(until="caught-up")
        workload.run(transactions=200)
        Capture(source, slot=slot, log=log, settings=capture_settings(segment_bytes=64 * 1024)).run(until="caught-up")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    reader = LogReader(log)
    destination = DuckDBDestination(tmp_path / "copy.duckdb")
    destination.startup(DestinationContext("test", copy_settings()))
    ends = sorted({change.end_lsn for change in reader.changes()})
    destination.write_events(EventBatch(reader, reader.start(), ends[10]))
    polling = subprocess.Popen([sys.executable, "-c", POLL, str(destination.path)], stdin=PIPE, stdout=PIPE, text=True)
    assert polling.stdin is not None and polling.stdout is not None
    try:
        assert polling.stdout.readline() == "polling\n"
        for after, to in itertools.pairwise(ends[10:]):
            destination.write_events(EventBatch(reader, after, to))
            time.sleep(0.01)  # a pipeline comes back after 50 ms; without a pause the other hardly ever gets in
    finally:
        said, _ = polling.communicate("enough\n")
        destination.shutdown()
    looks, sums = said.split(maxsplit=1)
    assert int(looks) > 5 and sums.strip() == "{80000}"


POLL = """
import sys, threading, time
import duckdb

enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), enough.set()), daemon=True).start()
looks, sums = 0, set()
while not enough.is_set():
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            question = "SELECT CAST(sum(balance) AS BIGINT) FROM (FROM accounts_a UNION ALL FROM accounts_b)"
            connection.execute("USE public")
            sums.add(connection.execute(question).fetchone()[0])
            if not looks:
                print("polling", flush=True)
            looks += 1
    except duckdb.IOException:
        pass
    time.sleep(0.005)
print(looks, sums)
"""
