"""What a reader of the views sees while they are written to: whole transactions of a table, each row once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.repetitions import some
from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, clickhouse_spark, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.clickhouse import client
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.incoming import Incoming
from walrelay.testing.destination_contract import ContractSource

__all__ = ["clickhouse", "clickhouse_spark", "place"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 3_000
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, round int, half int);
CREATE TABLE loose (round int, n int);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE PUBLICATION contract FOR TABLE keyed, loose;
"""
QUESTIONS = {
    # All rows are of one round: each transaction moves them all. Half of them have another key in each.
    "keyed": "SELECT count() AS many, uniqExact(id) AS keys, min(round) AS a, max(round) AS b FROM {}.keyed",
    "loose": "SELECT count() AS many, uniqExact(n) AS keys, min(round) AS a, max(round) AS b FROM {}.loose",
}


@contextmanager
def polled(clickhouse: ClickHouse, place: str, seen: dict[str, set[tuple[Any, ...]]]) -> Iterator[None]:
    """Ask both questions over and over, all answers kept."""
    done, failures = threading.Event(), list[BaseException]()

    def poll(table: str) -> None:
        client = clickhouse.client()
        try:
            while not done.is_set():
                seen[table].add(tuple(client.query(QUESTIONS[table].format(place)).result_rows[0]))
        except BaseException as error:
            failures.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=poll, args=(table,)) for table in seen for _ in range(2)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        done.set()
        for one in threads:
            one.join()
    assert not failures, failures


def rounds(source: ContractSource, count: int, rng: random.Random) -> None:
    """Each a transaction: every row changes, half of them take other keys, some go and come again, all are emptied."""
    for number in range(1, count + 1):
        how = rng.choice(["update", "move", "empty"])
        keyed = {
            "update": f"UPDATE keyed SET round = {number}",
            "move": f"UPDATE keyed SET round = {number}; UPDATE keyed SET id = id + 1000000 * {number} WHERE half = 0",
            "empty": f"TRUNCATE keyed; INSERT INTO keyed SELECT g, {number}, g % 2 FROM generate_series(1, {ROWS}) g",
        }[how]
        loose = "TRUNCATE loose" if how == "empty" else "DELETE FROM loose"
        more = f"INSERT INTO loose SELECT {number}, g FROM generate_series(1, {ROWS}) g"
        source.do(f"BEGIN; {keyed}; {loose}; {more}; COMMIT")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in many pieces, and a server that is told nothing else writes each by itself: so that what is seen at
    once is so by our doing."""
    taken = Incoming.batches

    def in_pieces(self: Incoming) -> Iterator[pa.RecordBatch]:
        for batch in taken(self):
            yield from (batch.slice(start, 250) for start in range(0, batch.num_rows, 250))

    monkeypatch.setattr(Incoming, "batches", in_pieces)
    small = dict.fromkeys(("max_insert_block_size", "min_insert_block_size_rows", "max_block_size"), 250)
    monkeypatch.setattr(client, "SETTINGS", {**client.SETTINGS, **small, "min_insert_block_size_bytes": 1})


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("how", some(["in one block"], ["in one block", "attached"]))
def test_a_reader_never_sees_half_of_a_transaction_nor_a_row_twice(
    how: str, clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, database: str, tmp_path: Path
) -> None:
    source = ContractSource(database, tmp_path, TABLES, ("keyed", "loose"))
    limits = Limits(block_bytes=0) if how == "attached" else Limits()
    destination = ClickHouseDestination(clickhouse.url(place, maintain_every="0s"), limits=limits)
    destination.startup(DestinationContext("reading", copy_settings(), spark=lambda: clickhouse_spark))
    try:
        source.do(f"INSERT INTO keyed SELECT g, 0, g % 2 FROM generate_series(1, {ROWS}) g")
        source.do(f"INSERT INTO loose SELECT 0, g FROM generate_series(1, {ROWS}) g")
        for table in ("keyed", "loose"):
            source.copy(destination, table)
        begun = source.batch().to
        rounds(source, some(6, 20), random.Random(how))
        seen: dict[str, set[tuple[Any, ...]]] = {"keyed": set(), "loose": set()}
        with polled(clickhouse, place, seen):
            take(source, destination, begun)
            for table in ("keyed", "loose"):
                source.copy(destination, table)
    finally:
        destination.shutdown()
        source.close()
    for table, answers in seen.items():
        assert all((rows, keys) == (ROWS, ROWS) and least == most for rows, keys, least, most in answers), (
            table,
            sorted(answers),
        )
        assert len(answers) > 1, "it was read while it changed"


def take(source: ContractSource, destination: Destination, begun: Any) -> None:
    """Transaction by transaction, each twice."""
    position = begun
    for end in (one for one in source.commits() if one > begun):
        for _ in range(2):
            destination.write_events(source.batch(position, end))
        position = end


@pytest.mark.usefixtures("small_blocks")
def test_an_insert_of_a_batch_makes_one_part(
    clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """Which is what ClickHouse promises to show as a whole."""
    source = ContractSource(database, tmp_path, TABLES, ("keyed", "loose"))
    destination = ClickHouseDestination(clickhouse.url(place, maintain_every="never"))
    destination.startup(DestinationContext("parts", copy_settings(), spark=lambda: clickhouse_spark))
    try:
        source.do("INSERT INTO keyed VALUES (0, 0, 0)")
        source.copy(destination, "keyed")
        begun = source.batch().to
        source.do("INSERT INTO keyed SELECT g, 0, g % 2 FROM generate_series(1, 40000) g")
        destination.write_events(source.batch(begun))
        made = clickhouse.ask(f"SELECT rows FROM system.parts WHERE database = '{place}' AND active AND rows > 100")
        assert made == [(40_000,)]
    finally:
        destination.shutdown()
        source.close()
