"""The workload does what replication has to carry over, and a log of it replayed up to a sample gives that sample.

The log is read here with `pg_logical_slot_get_binary_changes` and taken apart by a few lines of Python, so that the
kit is tested without the parts that it is made to test.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice, pairwise
from struct import unpack_from
from typing import Any

import psycopg
import pytest

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.proxy import FaultProxy
from walrelay.testing.replay import replay
from walrelay.testing.sample import Sample
from walrelay.testing.workload import DDL_KINDS, Workload
from walrelay.testing.workload_plans import ACCOUNTS, Mix, plans

pytestmark = pytest.mark.postgres


def a_workload(url: str, **settings: Any) -> Workload:
    """A workload whose tables are made, and a slot that has all its changes."""
    workload = Workload(url, **{"seed": 1, "large_rows": 1000} | settings)
    with psycopg.connect(url) as connection:
        workload.create(connection)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('workload', 'pgoutput')")
    return workload


def test_replayed_up_to_a_sample_the_log_gives_that_sample(database: str) -> None:
    workload = a_workload(database)
    workload.run(transactions=100)
    samples: list[Sample] = []
    with psycopg.connect(database) as connection:
        with workload.running():
            while len(samples) < 4:
                time.sleep(0.3)
                samples.append(workload.sample(connection))
        samples.append(workload.sample(connection))
    check(database, workload, samples)
    assert_consistent(samples)
    assert not samples[0].tables.keys() ^ set(workload.tables)


def test_the_log_gives_the_sample_also_when_columns_come_and_go(database: str) -> None:
    workload = a_workload(database, ddl=DDL_KINDS, via_partition_root=True, large_rows=200)
    done: Counter[str] = Counter()
    samples: list[Sample] = []
    with psycopg.connect(database) as connection:
        for _ in range(8):
            done += workload.run(transactions=200).operations
            samples.append(workload.sample(connection))
    assert set(done) >= {f"ddl {kind}" for kind in DDL_KINDS}
    columns = {column for sample in samples for table in sample.tables.values() for column in table.columns}
    assert len({column for column in columns if column.startswith(("extra_", "renamed_"))}) >= 4
    check(database, workload, samples)


def test_a_replica_that_misses_one_change_is_found_out(database: str) -> None:
    workload = a_workload(database)
    workload.run(transactions=100)
    with psycopg.connect(database) as connection:
        sample = workload.sample(connection)
    changes = list(logged(database, workload.publication))
    assert replay(changes, workload.keys, sample).differences(sample) == []
    ledger = [change for change in changes if change.table.name == "ledger"]
    changes.remove(ledger[len(ledger) // 2])
    assert len(replay(changes, workload.keys, sample).differences(sample)) == 1


def test_clients_go_on_when_connections_are_cut_and_the_server_crashes() -> None:
    with EmbeddedPostgres() as server, FaultProxy("127.0.0.1", server.port) as proxy:
        direct = server.create_database("crashing")
        workload = a_workload(direct)
        workload.url = proxy.url(direct)
        workload.run(transactions=100)
        stop = threading.Event()
        done: list[Any] = []
        runner = threading.Thread(target=lambda: done.append(workload.run(stop=stop)))
        runner.start()
        samples: list[Sample] = []
        for fault in (proxy.drop, lambda: proxy.truncate_after(3000), lambda: server.stop("immediate")):
            time.sleep(0.5)
            fault()
            server.start()
            with psycopg.connect(direct) as connection:
                samples.append(workload.sample(connection))
        await_more_in_ledger(direct, than=len(samples[-1].tables["public.ledger"].rows))
        stop.set()
        runner.join()
        with psycopg.connect(direct) as connection:
            samples.append(workload.sample(connection))
        (counts,) = done
        assert counts.reconnects >= 4
        assert counts.lost + counts.unknown >= 4
        assert_consistent(samples)
        check(direct, workload, samples)


def test_a_thousand_transactions_take_seconds_and_contain_everything(database: str) -> None:
    workload = a_workload(database, seed=5)
    begun = time.monotonic()
    counts = workload.run(transactions=2000)
    assert time.monotonic() - begun < 30
    ended = counts.committed + counts.rolled_back + counts.conflicts + counts.given_up
    assert ended == 2000
    assert counts.committed > 1700
    assert counts.rolled_back > 50
    families = {kind.split()[0] for kind in counts.operations}
    assert families >= {"item", "pair", "loose", "coded", "ledger", "transfer", "reading", "message", "mark"}
    assert families >= {"truncate", "large", "savepoint"}
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM items WHERE pg_column_size(body) > 4000").fetchone()
        assert row is not None and row[0] > 0


def test_the_same_seed_plans_the_same_operations() -> None:
    def first(seed: int, client: int) -> list[Any]:
        return list(islice(plans(seed, Mix(client, 1000, DDL_KINDS)), 300))

    assert first(7, 0) == first(7, 0)
    assert first(7, 0) != first(7, 1)
    assert first(7, 0) != first(8, 0)


def test_a_second_run_goes_on_where_the_first_ended(database: str) -> None:
    workload = a_workload(database, clients=1)
    operations = workload.run(transactions=40).operations + workload.run(transactions=40).operations
    planned = islice(plans(1, Mix(0, 1000, ())), 80)
    assert operations == Counter(kind for plan in planned if plan.commits for kind in plan.kinds)


def test_a_run_that_would_never_end_is_refused(database: str) -> None:
    with pytest.raises(ValueError, match="say when to end"):
        Workload(database, seed=1).run()
    with pytest.raises(ValueError, match="no such change of columns"):
        Workload(database, seed=1, ddl=["narrow"])


def test_what_no_client_can_cope_with_is_raised(database: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        Workload(database, seed=1).run(transactions=10)


def test_a_sample_inside_a_transaction_is_refused(database: str) -> None:
    workload = a_workload(database)
    with psycopg.connect(database) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(ValueError, match="end the connection's transaction first"):
            workload.sample(connection)


# ------------------------------------------------------------------------------------------------------ checks


def check(url: str, workload: Workload, samples: list[Sample]) -> None:
    """Replay to each sample from nothing, and to each from the one before it."""
    changes = list(logged(url, workload.publication))
    for sample in samples:
        assert replay(changes, workload.keys, sample).differences(sample) == []
    for earlier, later in pairwise(samples):
        assert replay(changes, workload.keys, later, since=earlier).differences(later) == []


def assert_consistent(samples: list[Sample]) -> None:
    """Balances keep their sum, and each client's ledger has no gap."""
    for sample in samples:
        accounts = [dict(row) for name in "ab" for row in sample.state()[f"public.accounts_{name}"]]
        assert len(accounts) == 2 * ACCOUNTS
        assert sum(Decimal(row["balance"]) for row in accounts) == 2 * ACCOUNTS * 1000
        ledger = [dict(row) for row in sample.state()["public.ledger"]]
        assert ledger
        for client in {row["client"] for row in ledger}:
            numbers = sorted(int(row["n"]) for row in ledger if row["client"] == client)
            assert numbers == list(range(1, len(numbers) + 1))


def await_more_in_ledger(url: str, than: int) -> None:
    deadline = time.monotonic() + 30
    with psycopg.connect(url, autocommit=True) as connection:
        while (row := connection.execute("SELECT count(*) FROM ledger").fetchone()) and row[0] <= than + 8:
            assert time.monotonic() < deadline, "the clients did not go on"
            time.sleep(0.05)


@dataclass(frozen=True)
class Logged:
    """A change as pgoutput sends it, its values as `plain_rows` would give them."""

    commit_lsn: Lsn
    end_lsn: Lsn
    ordinal: int
    xid: int
    table: TableName
    op: str
    row: dict[str, Any] | None = None
    old: dict[str, Any] | None = None
    old_kind: str | None = None
    unchanged: tuple[str, ...] = ()
    schema_version: int = 0


PARSERS: dict[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    20: int,
    23: int,
    1007: lambda text: [None if part == "NULL" else int(part) for part in text.strip("{}").split(",") if part],
    1184: datetime.fromisoformat,
    1700: Decimal,
    2950: lambda text: uuid.UUID(text).bytes,
}


class Reader:
    """Walks a message."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.at = 1

    def number(self, form: str) -> Any:
        (value,) = unpack_from(f">{form}", self.message, self.at)
        self.at += {"B": 1, "c": 1, "h": 2, "i": 4, "I": 4, "q": 8}[form]
        return value

    def string(self) -> str:
        end = self.message.index(0, self.at)
        text = self.message[self.at : end].decode()
        self.at = end + 1
        return text

    def row(self, columns: list[tuple[str, int]]) -> tuple[dict[str, Any], tuple[str, ...]]:
        row: dict[str, Any] = {}
        unchanged = []
        assert self.number("h") == len(columns)
        for name, oid in columns:
            kind = self.number("c")
            row[name] = None
            if kind == b"u":
                unchanged.append(name)
            elif kind == b"t":
                size = self.number("i")
                row[name] = PARSERS.get(oid, str)(self.message[self.at : self.at + size].decode())
                self.at += size
        return row, tuple(unchanged)


def logged(url: str, publication: str) -> Iterator[Logged]:
    """All changes of the slot, in order, without moving it."""
    with psycopg.connect(url) as connection:
        messages = connection.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes('workload', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s)",
            (publication,),
        )
        yield from parsed(data for (data,) in messages)


def parsed(messages: Iterator[bytes]) -> Iterator[Logged]:
    relations: dict[int, tuple[TableName, list[tuple[str, int]]]] = {}
    commit_lsn, xid, ordinal = Lsn(0), 0, 0
    for message in messages:
        reader, tag = Reader(message), message[:1]
        if tag == b"B":
            commit_lsn, _, xid, ordinal = Lsn(reader.number("q")), reader.number("q"), reader.number("I"), 0
        elif tag == b"R":
            oid, name = reader.number("I"), TableName(reader.string(), reader.string())
            reader.number("c")
            columns = []
            for _ in range(reader.number("h")):
                reader.number("B")
                columns.append((reader.string(), reader.number("I")))
                reader.number("i")
            relations[oid] = (name, columns)
        elif tag == b"T":
            count, _ = reader.number("i"), reader.number("B")
            for _ in range(count):
                table, _columns = relations[reader.number("I")]
                yield Logged(commit_lsn, commit_lsn, ordinal, xid, table, "truncate")
                ordinal += 1
        elif tag in (b"I", b"U", b"D"):
            table, columns = relations[reader.number("I")]
            old, kind, unchanged = None, reader.number("c"), tuple[str, ...]()
            old_kind = {b"K": "key", b"O": "row"}.get(kind)
            if old_kind:
                old, _ = reader.row(columns)
                kind = reader.number("c") if tag == b"U" else kind
            row = None
            if kind == b"N":
                row, unchanged = reader.row(columns)
            op = {b"I": "insert", b"U": "update", b"D": "delete"}[tag]
            yield Logged(commit_lsn, commit_lsn, ordinal, xid, table, op, row, old, old_kind, unchanged)
            ordinal += 1
