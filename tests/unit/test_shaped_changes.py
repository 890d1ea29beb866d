"""A destination that is given shaped changes holds what the options make of the source's rows."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.histories import TABLES, Row, SmallLog, write_history
from tests.unit.test_duckdb_collapse import text
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema
from walrelay.model.table_options import Hash, KeepLast, Rename, TableOptions, WithConstant, WithNull
from walrelay.shaping.shaped_log import shaped_batch
from walrelay.shaping.shaping import Shaping

Shaped = dict[str, Any]
T = '"odd schema".t'


def digest(salt: str, value: Any) -> str | None:
    return None if value is None else hashlib.sha256(f"{salt}{value}".encode()).hexdigest()


def masked(value: str | None, last: int) -> str | None:
    if value is None:
        return None
    return "*" * len(value) if len(value) <= last else "*" * (len(value) - last) + value[-last:]


RENAMED = TableOptions(
    rename=Rename(schema="raw", table="copy_of_{table}", columns={"Body": "a", "a": "number", "note": "remark"}),
    leave_out=("f",),
)
HIDDEN = TableOptions(
    hash=Hash(("id", "note"), salt="pepper"), mask={"Body": KeepLast(2), "a": WithConstant(7), "f": WithNull()}
)


def renamed_row(row: Row) -> Shaped:
    names = {"Body": "a", "a": "number", "note": "remark"}
    return {names.get(name, name): value for name, value in row.items() if name != "f"}


def hidden_row(row: Row) -> Shaped:
    made = {
        "id": digest("pepper", row["id"]),
        "note": digest("pepper", row["note"]),
        "Body": masked(row["Body"], 2),
        "a": None if row["a"] is None else 7,
        "f": None,
    }
    return {**row, **made}


CASES: dict[str, tuple[TableOptions, Callable[[Row], Shaped], TableName]] = {
    "renamed": (RENAMED, renamed_row, TableName("raw", "copy_of_t")),
    "hidden": (HIDDEN, hidden_row, TableName("odd schema", "t")),
}


@pytest.mark.parametrize("kind", list(TABLES))
@pytest.mark.parametrize("case", list(CASES))
def test_random_histories_are_shaped(tmp_path: Path, case: str, kind: str) -> None:
    options, shaped_row, name = CASES[case]
    rng = random.Random(f"{case} {kind}")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log)
    shaping = Shaping({T: options})
    path = tmp_path / "copy.duckdb"
    destination = DuckDBDestination(path, threads=2)
    destination.startup(DestinationContext("test", copy_settings()))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(6))})):
        given = shaped_batch(shaping, log.batch(ends[low], ends[high]), tmp_path / "staging" / str(low))
        destination.write_events(given.batch)
        assert destination.write_events(given.batch).rows == 0
        given.forget()
        for schema, rows, number in states[ends[high]]:
            shows = (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn < ends[high]
            if not shows:
                continue
            if schema.name.name == "t":
                plan = shaping.plan(schema)
                assert plan is not None and plan.shaped.name == name
                assert held(path, plan.shaped) == counted(plan.shaped, [shaped_row(row) for row in rows])
            else:
                assert held(path, schema) == counted(schema, rows)
    assert not list((tmp_path / "staging").iterdir())
    destination.shutdown()


def counted(schema: TableSchema, rows: list[Row]) -> Counter[tuple[str | None, ...]]:
    names = sorted(column.name for column in schema.columns)
    return Counter(tuple(text(row[name]) for name in names) for row in rows)


def held(path: Path, schema: TableSchema) -> Counter[tuple[str | None, ...]]:
    """What DuckDB has of the table, whose columns stand in the order in which they came."""
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in sorted(one.name for one in schema.columns))
        table = f'"{schema.name.schema}"."{schema.name.name}"'
        there = {row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()}
        assert there == {column.name for column in schema.columns}
        return Counter(connection.execute(f"SELECT {columns} FROM {table}").fetchall())


def test_the_log_of_shaped_changes_names_no_hidden_value(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "log")
    write_history("full with key", random.Random(3), log, rounds=20)
    shaping = Shaping({T: replace(HIDDEN, include=True), "*": TableOptions(include=False)})
    given = shaped_batch(shaping, log.batch(), tmp_path / "staging")
    written = b"".join(file.read_bytes() for file in (tmp_path / "staging").rglob("*") if file.is_file())
    real = b"".join(file.read_bytes() for file in (tmp_path / "log").rglob("*.parquet"))
    assert b"short" in real
    assert b"short" not in written
    assert {part.schema.name.name for part in given.batch.tables()} == {"t"}
