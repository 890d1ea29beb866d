"""A destination that is given shaped changes holds what the options make of the source's rows."""

from __future__ import annotations

import copy
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

from tests.histories import TABLES, Row, SmallLog, Source, shape, write_history
from tests.repetitions import some
from tests.unit.test_duckdb_collapse import text
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.errors import UnsentValueError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema
from walrelay.model.table_options import Hash, KeepLast, Rename, TableOptions, WithConstant, WithNull
from walrelay.shaping.failures import KeptRowsTruncatedError
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


@pytest.mark.parametrize("kind", some(["primary key", "full without key"], list(TABLES)))
@pytest.mark.parametrize("case", list(CASES))
def test_random_histories_are_shaped(tmp_path: Path, case: str, kind: str) -> None:
    options, shaped_row, name = CASES[case]
    rng = random.Random(f"{case} {kind}")
    log = SmallLog(tmp_path / "log")
    states = write_history(kind, rng, log, rounds=some(24, 60))
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


SOFT = TableOptions(soft_deletes=True, rename=Rename(columns={"Body": "text"}))


@pytest.mark.parametrize("kind", ["primary key", "index", "full with key"])
def test_deleted_rows_stay_with_what_they_held_last(tmp_path: Path, kind: str) -> None:
    """Also where the delete said no more than the key, and values were not sent again."""
    rng = random.Random(f"soft {kind}")
    log = SmallLog(tmp_path / "log")
    deleted: dict[Any, Row] = {}
    states = soft_history(kind, rng, log, deleted)
    shaping = Shaping({T: SOFT})
    path = tmp_path / "copy.duckdb"
    destination = DuckDBDestination(path, threads=2)
    destination.startup(DestinationContext("test", copy_settings()))
    ends = [log.start, *states]
    for low, high in pairwise(sorted({0, len(ends) - 1, *(rng.randrange(len(ends)) for _ in range(4))})):
        given = shaped_batch(shaping, log.batch(ends[low], ends[high]), tmp_path / "staging" / str(low))
        destination.write_events(given.batch)
        given.forget()
    destination.shutdown()
    rows, gone = states[ends[-1]]
    wanted = [(row, "false") for row in rows] + [(row, "true") for row in gone]
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(
            'SELECT CAST(id AS VARCHAR), CAST(a AS VARCHAR), "text", note, CAST(_walrelay_deleted AS VARCHAR),'
            f" _walrelay_deleted_at IS NOT NULL FROM {T}"
        ).fetchall()
    expected = [
        (text(r["id"]), text(r["a"]), r["Body"], r["note"], is_gone, is_gone == "true") for r, is_gone in wanted
    ]
    assert Counter(found) == Counter(expected)
    assert any(is_gone == "true" for _, is_gone in wanted)


SoftStates = dict[Lsn, tuple[list[Row], list[Row]]]


def soft_history(kind: str, rng: random.Random, log: SmallLog, deleted: dict[Any, Row]) -> SoftStates:
    """A table changed at random, but not truncated; what it holds after each commit, and which rows went."""
    source = Source(shape(**TABLES[kind]), rng)
    states: SoftStates = {}
    for _ in range(40):
        for _ in range(rng.choice([1, 2, 8])):
            before = {row["id"]: copy.deepcopy(row) for row in source.rows}
            sent = len(source.sent)
            source.step()
            if source.sent[sent][2]["op"] == "truncate":
                del source.sent[sent:]
                source.rows[:] = before.values()
                continue
            now = {row["id"] for row in source.rows}
            if source.sent[sent][2]["op"] == "delete":
                deleted.update({key: row for key, row in before.items() if key not in now})
            for key in now:
                deleted.pop(key, None)
        if source.sent:
            end = log.commit(source.sent)
            source.sent.clear()
            states[end] = (copy.deepcopy(source.rows), copy.deepcopy(list(deleted.values())))
        if rng.random() < 0.3 and log.open:
            log.close_segment()
    if log.open:
        log.close_segment()
    return states


def test_a_truncate_is_refused_where_deleted_rows_are_kept(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "log")
    log.commit([(shape("default", key=True), 1, {"op": "truncate"})])
    log.close_segment()
    for options in (SOFT, TableOptions(history="changes")):
        with pytest.raises(KeptRowsTruncatedError, match="was truncated"):
            shaped_batch(Shaping({T: options}), log.batch(), tmp_path / "staging")
    assert not (tmp_path / "staging").exists()


def test_every_change_is_a_row_of_the_history(tmp_path: Path) -> None:
    schema = shape("full", key=True)
    log, whole = SmallLog(tmp_path / "log"), {"a": 1, "Body": "Tlong", "f": 1.5, "note": None}
    first, second = {"id": 1, **whole}, {"id": 1, **whole, "a": 2}
    moved = {"id": 2, **whole, "a": 2}
    log.commit([(schema, 1, {"op": "insert", "row": first})])
    sent = {**second, "Body": None}
    log.commit([(schema, 1, {"op": "update", "row": sent, "old": first, "old_kind": "row", "unchanged": ["Body"]})])
    log.commit([(schema, 1, {"op": "update", "row": moved, "old": second, "old_kind": "row"})])
    log.commit([(schema, 1, {"op": "delete", "old": moved, "old_kind": "row"})])
    log.close_segment()
    path = tmp_path / "copy.duckdb"
    destination = DuckDBDestination(path, threads=2)
    destination.startup(DestinationContext("test", copy_settings()))
    shaping = Shaping({T: TableOptions(history="changes", leave_out=("f",))})
    for low, high in pairwise([log.start, log.ends[1], log.ends[-1]]):
        given = shaped_batch(shaping, log.batch(low, high), tmp_path / "staging" / str(low))
        destination.write_events(given.batch)
        given.forget()
    destination.shutdown()
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(
            'SELECT _walrelay_operation, id, a, "Body", _walrelay_ordinal, _walrelay_committed_at IS NOT NULL'
            f" FROM {T} ORDER BY _walrelay_lsn, _walrelay_operation"
        ).fetchall()
    assert found == [
        ("insert", 1, 1, "Tlong", 0, True),
        ("update", 1, 2, "Tlong", 0, True),
        ("delete", 1, 2, "Tlong", 0, True),
        ("update", 2, 2, "Tlong", 0, True),
        ("delete", 2, 2, "Tlong", 0, True),
    ]


def test_a_history_of_rows_whose_values_are_not_sent_again_is_refused_with_the_remedy(tmp_path: Path) -> None:
    schema, log = shape("default", key=True), SmallLog(tmp_path / "log")
    row = {"id": 1, "a": 1, "Body": None, "f": None, "note": None}
    log.commit([(schema, 1, {"op": "update", "row": row, "unchanged": ["Body"]})])
    log.close_segment()
    with pytest.raises(UnsentValueError, match="Body") as caught:
        shaped_batch(Shaping({T: TableOptions(history="changes")}), log.batch(), tmp_path / "staging")
    assert "REPLICA IDENTITY FULL" in caught.value.hint
    assert caught.value.context["table_id"] == schema.id
    # A column that does not arrive is not missed.
    shaped_batch(Shaping({T: TableOptions(history="changes", leave_out=("Body",))}), log.batch(), tmp_path / "staging")
