"""Whether a destination holds what its source holds, as an assertion that names the table and the difference."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from walrelay.control.agreement import compare
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.memory import MemoryDestination
from walrelay.postgres.source import PostgresSource
from walrelay.testing.faults import FaultyDestination
from walrelay.testing.replay import postgres_text
from walrelay.testing.sample import Row, plain_row, take_sample

_SHOWN = 3


def assert_replicated(
    source: PostgresSource, destination: str | os.PathLike[str] | DuckDBDestination | MemoryDestination | Any
) -> None:
    """Raise AssertionError unless every table of the publication is the same on both sides, row by row.

    The source must be at rest. A DuckDB file, given as path or destination, is compared by counts and hashes, with row
    filters and column lists; a `MemoryDestination` row by row, without those. A `FaultyDestination` is what it wraps.
    """
    while isinstance(destination, FaultyDestination):
        destination = destination.inner
    if isinstance(destination, MemoryDestination):
        differences = _differences_in_memory(source, destination)
    else:
        path = destination.path if isinstance(destination, DuckDBDestination) else Path(destination)
        differences = [f"{one.name}: {one}" for one in compare(source, path) if not one.agrees]
    if differences:
        raise AssertionError("the destination is not as the source:\n  " + "\n  ".join(differences))


def _differences_in_memory(source: PostgresSource, destination: MemoryDestination) -> list[str]:
    with psycopg.connect(source.conninfo, autocommit=True) as connection:
        sample = take_sample(connection, source.publication)
    found: list[str] = []
    for name, contents in sample.tables.items():
        there = Counter(plain_row(dict(zip(contents.columns, row, strict=True))) for row in contents.rows)
        try:
            here = Counter(_as_texts(row) for row in destination.rows(name))
        except KeyError:
            found.append(f"{name}: missing in the destination")
            continue
        if there != here:
            found.append(_described(name, there, here))
    return found


def _as_texts(row: dict[str, Any]) -> Row:
    return plain_row({name: None if value is None else postgres_text(value) for name, value in row.items()})


def _described(name: str, there: Counter[Row], here: Counter[Row]) -> str:
    lacking, surplus = there - here, here - there
    words = f"{name}: {there.total():,} rows in the source, {here.total():,} in the destination"
    for kind, rows in (("lacking", lacking), ("too many", surplus)):
        if rows:
            shown = ", ".join(str(dict(row)) for row in list(rows.elements())[:_SHOWN])
            words += f"; {rows.total():,} {kind}, such as {shown}"
    return words
