"""Random histories: whatever happens, and wherever batches are cut, ClickHouse holds what the source does."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.histories import FLOAT8, INTERVAL, TABLES, Row, SmallLog, write_history
from tests.repetitions import some
from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, clickhouse_spark, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.model.schema import Column, TableSchema

__all__ = ["clickhouse", "clickhouse_spark", "place"]
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
LANES = {"quick": Limits(unneeded_rows=4), "Spark's": Limits(quick_rows=0, block_bytes=0, unneeded_rows=4)}
"""Maintained whenever there is something to maintain."""


def text(column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.type == FLOAT8:
        return float(value).hex()
    if column.type == INTERVAL:
        return " ".join(str(value[name]) for name in ("months", "days", "microseconds"))
    return str(value)


def contents(schema: TableSchema, rows: list[Row]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(text(one, row[one.name]) for one in schema.columns) for row in rows)


@pytest.mark.parametrize("lane", some(["quick"], list(LANES)))
@pytest.mark.parametrize("kind", some(["primary key", "full without key"], list(TABLES)))
def test_random_histories(
    clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, tmp_path: Path, kind: str, lane: str
) -> None:
    rng = random.Random(f"{kind} into ClickHouse by the {lane} lane")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=some(24, 60))
    url = clickhouse.url(place, maintain_every="0s")
    destination = ClickHouseDestination(url, limits=LANES[lane])
    destination.startup(DestinationContext("test", copy_settings(), spark=lambda: clickhouse_spark))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(some(4, 12)))})):
        destination.write_events(log.batch(ends[low], ends[high]))
        assert destination.write_events(log.batch(ends[low], ends[high])).rows == 0
        for schema, rows, number in states[ends[high]]:
            if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= ends[high]:
                held = contents(schema, clickhouse.rows(place, str(schema.name)))
                assert held == contents(schema, rows), (schema.name, ends[high])
    destination.shutdown()


@pytest.mark.parametrize("kind", some(["full without key"], ["primary key", "full without key"]))
def test_what_was_not_recorded_comes_again_in_other_batches_and_changes_nothing(
    clickhouse: ClickHouse, place: str, clickhouse_spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Rows are there and the position is not: as after a crash between the two."""
    rng = random.Random(f"{kind} again")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=30)
    ends = [log.start, *states]
    reached = 0
    while reached < len(ends) - 1:
        further = min(len(ends) - 1, reached + rng.randint(1, 6))
        destination = ClickHouseDestination(clickhouse.url(place))
        destination.startup(DestinationContext("test", copy_settings(), spark=lambda: clickhouse_spark))
        destination.write_events(log.batch(ends[reached], ends[rng.randint(reached, further)]))
        forget_since(clickhouse, place, int(ends[reached]))
        destination.shutdown()
        destination = ClickHouseDestination(clickhouse.url(place))
        destination.startup(DestinationContext("test", copy_settings(), spark=lambda: clickhouse_spark))
        destination.write_events(log.batch(ends[reached], ends[further]))
        for schema, rows, number in states[ends[further]]:
            if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= ends[further]:
                held = contents(schema, clickhouse.rows(place, str(schema.name)))
                assert held == contents(schema, rows), (schema.name, ends[further])
        destination.shutdown()
        reached = further


def forget_since(clickhouse: ClickHouse, place: str, lsn: int) -> None:
    client = clickhouse.client()
    client.command(f"ALTER TABLE {place}._walrelay_progress DELETE WHERE lsn > {lsn}", settings={"mutations_sync": 2})
    client.close()
