"""A function on DataFrames makes the same rows of changes, cut into batches anywhere, as of the source's rows."""

from __future__ import annotations

import copy
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit

from tests.histories import TABLES, Row, SmallLog, Source, shape
from tests.repetitions import some
from tests.unit.test_duckdb_collapse import text
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.model.lsn import Lsn
from walrelay.model.table_options import Rename, TableOptions
from walrelay.shaping.shaped_log import shaped_batch
from walrelay.shaping.shaping import Shaping

T = '"odd schema".t'


def doubled(rows: DataFrame) -> DataFrame:
    made = rows.withColumn("a", col("a") * 2).withColumn("b", coalesce(col("a"), lit(-1))).drop("f")
    return made.select("b", "note", "id", "a", "text")


def by_hand(row: Row) -> tuple[str | None, ...]:
    a = None if row["a"] is None else row["a"] * 2
    return tuple(text(one) for one in (row["id"], a, -1 if a is None else a, row["Body"], row["note"]))


def history(kind: str, rng: random.Random, log: SmallLog) -> dict[Lsn, list[Row]]:
    """Changes at random, but for rows that take another key and leave values out: these are copied again."""
    source, states = Source(shape(**TABLES[kind]), rng), dict[Lsn, list[Row]]()
    for _ in range(30):
        for _ in range(rng.choice([1, 2, 8])):
            before, sent = copy.deepcopy(source.rows), len(source.sent)
            source.step()
            change = source.sent[sent][2]
            if change.get("old_kind") == "key" and change.get("unchanged"):
                del source.sent[sent:]
                source.rows[:] = before
        if source.sent:
            states[log.commit(source.sent)] = copy.deepcopy(source.rows)
            source.sent.clear()
        if rng.random() < 0.3 and log.open:
            log.close_segment()
    if log.open:
        log.close_segment()
    return states


@pytest.mark.parametrize("kind", some(["primary key", "full without key"], list(TABLES)))
def test_random_histories_through_a_function(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng = random.Random(f"function {kind}")
    log = SmallLog(tmp_path / "log")
    states = history(kind, rng, log)
    options = TableOptions(rename=Rename(table="made", columns={"Body": "text"}))
    shaping = Shaping({T: options}, {T: doubled}, spark=lambda: spark)
    destination = DuckDBDestination(tmp_path / "copy.duckdb", threads=2)
    destination.startup(DestinationContext("test", copy_settings()))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(some(2, 6)))})):
        given = shaped_batch(shaping, log.batch(ends[low], ends[high]), tmp_path / "staging" / str(low))
        destination.write_events(given.batch)
        given.forget()
        with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as connection:
            found = connection.execute(
                'SELECT CAST(id AS VARCHAR), CAST(a AS VARCHAR), CAST(b AS VARCHAR), "text", note'
                ' FROM "odd schema".made'
            ).fetchall()
        assert Counter(found) == Counter(by_hand(row) for row in states[ends[high]])
    destination.shutdown()
