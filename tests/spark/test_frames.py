"""What Spark SQL makes of a batch is what the plain reference model makes of it, whatever the history."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.histories import TABLES, SmallLog, write_history
from tests.repetitions import some
from walrelay.changes import collapse
from walrelay.changes.batch import EventBatch
from walrelay.changes.latest import Latest
from walrelay.changes.table_changes import TableChanges
from walrelay.model.changes import Change


def plain(value: Any) -> Any:
    """Comparable, with -0.0 and 0.0 told apart."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return value


def changes_of(batch: EventBatch, part: TableChanges) -> list[Change]:
    """The table's changes, each with the columns that the table has at the batch's end, by attribute number."""
    names = {column.attnum: column.name for column in part.schema.columns}
    found = []
    for one in batch.batches():
        if one.version.schema.id != part.schema.id:
            continue
        now = {column.name: names[column.attnum] for column in one.version.schema.columns if column.attnum in names}
        left_alone = {name for name in names.values() if name not in now.values()}
        for change in one.changes():
            more = left_alone if change.op == "update" else set()
            found.append(
                Change(
                    **{
                        **{name: getattr(change, name) for name in change.__dataclass_fields__},
                        "row": renamed(change.row, now, part),
                        "old": renamed(change.old, now, part),
                        "unchanged": tuple({*(now[name] for name in change.unchanged if name in now), *more}),
                    }
                )
            )
    return found


def renamed(row: Any, now: dict[str, str], part: TableChanges) -> Any:
    if row is None:
        return None
    known = {now[name]: plain(value) for name, value in row.items() if name in now}
    return {column.name: known.get(column.name) for column in part.schema.columns}


@pytest.mark.parametrize("kind", TABLES)
def test_random_histories_collapse_to_what_the_model_says(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng = random.Random(f"{kind} as frames")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=some(16, 60))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    ends = [log.start, *states]
    cuts = sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(some(1, 6)))})
    for low, high in pairwise(cuts):
        batch = log.batch(ends[low], ends[high])
        for part in batch.tables():
            changes = changes_of(batch, part)
            assert part.frames(session).survey.changes == len(changes)
            if not changes:
                continue
            compare_changes(part, session, changes)
            if part.key:
                compare_latest(part.latest(session), collapse.latest(changes, part.key))
            else:
                compare_net(part.latest(session), collapse.net(changes))


def compare_changes(part: TableChanges, session: SparkSession, changes: list[Change]) -> None:
    """The changes as Spark's own reader gives them are those that were sent."""
    found = {
        (row.commit_lsn, row.ordinal): (row.op, *(comparable(row[side]) for side in ("row", "old")))
        for row in part.dataframe(session).collect()
    }
    assert found == {(one.commit_lsn, one.ordinal): (one.op, one.row, one.old) for one in changes}


def comparable(image: Any) -> Any:
    return None if image is None else {name: plain(value) for name, value in image.asDict(recursive=True).items()}


def compare_latest(found: Latest, wanted: collapse.Latest) -> None:
    assert found.truncated == wanted.is_truncated
    puts, gone = {}, set()
    for row in found.frame.collect():
        key = tuple(row.key)
        if row.deleted:
            gone.add(key)
            continue
        lacking = frozenset(row.unchanged)
        values = {name: value for name, value in comparable(row.row).items() if name not in lacking}
        origin = None
        if lacking and not row.came:
            origin = key if row.origin is None else tuple(row.origin)
        puts[key] = (values, lacking, origin)
    assert gone == wanted.gone
    assert puts == {
        key: (
            {name: value for name, value in put.row.items() if name not in put.lacking},
            put.lacking,
            put.origin if put.lacking else None,
        )
        for key, put in wanted.puts.items()
    }


def compare_net(found: Latest, wanted: tuple[bool, Counter[collapse.Key]]) -> None:
    is_truncated, rows = wanted
    assert found.truncated == is_truncated
    assert rows == Counter({tuple(comparable(row.row).values()): row.more for row in found.frame.collect()})
