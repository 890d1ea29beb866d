"""Changes taken into Postgres, in whatever pieces, leave exactly what they left in the source (SEMANTICS 13-18)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.histories import TABLES, Row, SmallLog, write_history
from tests.repetitions import some
from tests.warehouse.postgres_kit import fresh_database
from walrelay import PostgresDestination
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.model.schema import TableSchema
from walrelay.testing.postgres import EmbeddedPostgres


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


def text(value: Any) -> str | None:
    """What Postgres prints for a value."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {1: "1 mon"}.get(value["months"]) or {30: "30 days"}.get(value["days"]) or "720:00:00"
    if isinstance(value, float):
        return {"nan": "NaN", "0.0": "0", "-0.0": "-0"}.get(str(value), str(value))
    return str(value)


def wanted(schema: TableSchema, rows: list[Row]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(text(row[column.name]) for column in schema.columns) for row in rows)


def found(url: str, schema: TableSchema) -> Counter[tuple[str | None, ...]]:
    with psycopg.connect(url) as connection:
        name = sql.Identifier(schema.name.schema, schema.name.name)
        cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(name))
        assert [one.name for one in cursor.description or ()] == [column.name for column in schema.columns]
        columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(one.name)) for one in schema.columns)
        return Counter(connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, name)).fetchall())


@pytest.mark.parametrize("piece_rows", some([3], [1, 7, 250_000]))
@pytest.mark.parametrize("kind", list(TABLES))
def test_random_histories(target: str, tmp_path: Path, kind: str, piece_rows: int) -> None:
    rng = random.Random(f"{kind} into Postgres {piece_rows}")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=some(40, 150))
    destination = PostgresDestination(target, piece_rows=piece_rows)
    destination.startup(DestinationContext("test", copy_settings()))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(some(4, 20)))})):
        destination.write_events(log.batch(ends[low], ends[high]))
        assert destination.write_events(log.batch(ends[low], ends[high])).rows == 0
        for schema, rows, number in states[ends[high]]:
            if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= ends[high]:
                assert found(target, schema) == wanted(schema, rows), (schema.name, ends[high])
    destination.shutdown()
