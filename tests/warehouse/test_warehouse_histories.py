"""Random histories, cut at random, lead to what the plain reference says; a batch that comes again changes nothing."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.histories import TABLES, SmallLog, write_history
from tests.warehouse.warehouse_kit import Place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[tuple[str, str | None], ...]]:
    return Counter(tuple(sorted((name, _text(value)) for name, value in row.items())) for row in rows)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else repr(value)


@pytest.mark.parametrize("kind", list(TABLES))
def test_random_histories(place: Place, warehouse_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng = random.Random(f"{kind} into a warehouse")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=40)
    destination = place.destination()
    destination.startup(DestinationContext("test", copy_settings(), spark=lambda: warehouse_spark))
    ends = [log.start, *states]
    try:
        for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(4))})):
            destination.write_events(log.batch(ends[low], ends[high]))
            assert destination.write_events(log.batch(ends[low], ends[high])).rows == 0
            for schema, rows, number in states[ends[high]]:
                if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= ends[high]:
                    wanted = counted({column.name: row[column.name] for column in schema.columns} for row in rows)
                    assert counted(place.rows(str(schema.name))) == wanted, (schema.name, ends[high])
    finally:
        destination.shutdown()
