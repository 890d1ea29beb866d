"""Changes taken into DuckDB, in whatever pieces, leave exactly what they left in the source (SEMANTICS 13–18)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.histories import (
    DAYS,
    INT8,
    MONTH,
    TABLES,
    TEXT,
    Row,
    SmallLog,
    shape,
    write_history,
)
from walrelay.changes.batch import TableRange
from walrelay.changes.rows import LandedFile, TableRows
from walrelay.config.settings import copy_settings
from walrelay.decode.changes import change_schema
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import apply as duckdb_apply
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.errors import DestinationError, MissingRowError, SpecialValueError, UnnamedRowError, UnsentValueError
from walrelay.log.compaction import CompactionSettings, Compactor
from walrelay.log.manifest import Manifest
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, TableSchema
from walrelay.model.visibility import VisibleTransactions, unseen_sql

FOREVER = {"months": 2**31 - 1, "days": 2**31 - 1, "microseconds": 2**63 - 1}


def text(value: Any) -> str | None:
    """What DuckDB prints for a value."""
    if value is None:
        return None
    if isinstance(value, float):
        return "nan" if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {1: "1 month"}.get(value["months"]) or {30: "30 days"}.get(value["days"]) or "720:00:00"
    return str(value)


def contents(schema: TableSchema, rows: list[Row]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(text(row[column.name]) for column in schema.columns) for row in rows)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def found(path: Path, schema: TableSchema) -> Counter[tuple[str | None, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = ", ".join(f"CAST({quoted(column.name)} AS VARCHAR)" for column in schema.columns)
        table = f"{quoted(schema.name.schema)}.{quoted(schema.name.name)}"
        held = connection.execute(f"DESCRIBE {table}").fetchall()
        assert [row[0] for row in held] == [column.name for column in schema.columns]
        return Counter(connection.execute(f"SELECT {columns} FROM {table}").fetchall())


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., DuckDBDestination]]:
    opened: list[DuckDBDestination] = []

    def start(**settings: object) -> DuckDBDestination:
        for earlier in opened:
            earlier.shutdown()
        destination = DuckDBDestination(tmp_path / "copy.duckdb", threads=2)
        destination.startup(DestinationContext("test", copy_settings(**settings)))
        opened.append(destination)
        return destination

    yield start
    for destination in opened:
        destination.shutdown()


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "log")


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
@pytest.mark.parametrize("kind", TABLES)
def test_random_histories_in_random_pieces(
    kind: str, small_rows: int, log: SmallLog, started: Callable[..., DuckDBDestination],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two tables, one with intervals; batches cut at any commit, some taken twice, some overlapping."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    rng = random.Random(kind)
    states = write_history(kind, rng, log)
    destination = started()
    at = log.start
    while at < log.ends[-1]:
        later = [end for end in states if end > at]
        to = rng.choice(later[: rng.choice([3, 15, 60])])
        after = at if rng.random() < 0.7 else rng.choice([log.start, *(end for end in states if end <= at)])
        destination.write_events(log.batch(after, to))
        if rng.random() < 0.3:
            assert destination.write_events(log.batch(after, to)).rows == 0
        at = to
        assert destination.applied_lsn(None) == to
        for schema, rows, number in states[to]:
            if (schema.id, number) in log.versions and log.versions[schema.id, number].from_lsn <= to:
                assert found(destination.path, schema) == contents(schema, rows), (schema.name, to)


def insert(schema: TableSchema, **row: Any) -> tuple[TableSchema, int, Row]:
    return (schema, 1, {"op": "insert", "row": {column.name: row.get(column.name) for column in schema.columns}})


def update(schema: TableSchema, *unchanged: str, was: int | None = None, **row: Any) -> tuple[TableSchema, int, Row]:
    """An update of a table with a primary key; `was` is the key it had."""
    old = {"old": {column.name: was if column.name == "id" else None for column in schema.columns}, "old_kind": "key"}
    image = {column.name: row.get(column.name) for column in schema.columns}
    change = {"op": "update", "row": image, "unchanged": list(unchanged) or None, **(old if was is not None else {})}
    return (schema, 1, change)


def rows_of(path: Path, schema: TableSchema, columns: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as connection:
        table = f"{quoted(schema.name.schema)}.{quoted(schema.name.name)}"
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def copied(schema: TableSchema, rows: list[Row], path: Path, lsn: Lsn) -> TableRows:
    """A landed copy."""
    fields = list(change_schema(schema).field("row").type)
    columns = {f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in fields}
    pq.write_table(pa.table(columns), path)
    return TableRows(schema, (LandedFile(str(path), len(rows), 1),), DuckDBDestination.dialect.target, len(rows), lsn)


def test_the_sql_for_visibility_says_what_the_model_says() -> None:
    rng = random.Random(8)
    connection = duckdb.connect()
    for _ in range(60):
        xmin = rng.choice([3, 700, 2**31 - 5, 2**32 - 4, 2**32 + 2, 5 * 2**32 + 17, 2**33 + 2**31])
        xmax = xmin + rng.randint(0, 30)
        listed = sorted(rng.sample(range(xmin, xmax), rng.randint(0, xmax - xmin)))
        snapshot = f"{xmin}:{xmax}:{','.join(map(str, listed))}"
        near = {(xmax + rng.randint(-40, 40)) % 2**32 for _ in range(60)}
        xids = sorted(xid for xid in near | {3, 4, 2**31 - 1, 2**31, 2**32 - 1} if xid >= 3)
        asked = f"SELECT xid, {unseen_sql(snapshot)} FROM (SELECT CAST(unnest({xids}) AS BIGINT) AS xid)"
        model = VisibleTransactions.parse(snapshot)
        assert dict(connection.execute(asked).fetchall()) == {xid: not model.sees(xid) for xid in xids}, snapshot


def test_a_toasted_value_follows_its_row_through_changes_of_its_key(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    """The value lives only in the file, under a key that another row has by now (SEMANTICS 14)."""
    table = shape("default", key=True)
    first = log.commit([insert(table, id=1, Body="T one"), insert(table, id=2, Body="T two"), insert(table, id=3)])
    log.commit(
        [
            update(table, "Body", was=1, id=9, a=1),
            update(table, "Body", was=2, id=1, a=2),
            update(table, "Body", was=9, id=2, a=3),
            update(table, "Body", id=2, a=4),
            update(table, id=1, a=5, Body="T new"),
            update(table, "Body", was=1, id=30, a=6),
        ]
    )
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    destination.write_events(log.batch(first))
    assert rows_of(destination.path, table, 'id, a, "Body"') == [(2, 4, "T one"), (3, None, None), (30, 6, "T new")]


def test_a_long_chain_of_key_changes_in_one_batch(log: SmallLog, started: Callable[..., DuckDBDestination]) -> None:
    table = shape("default", key=True)
    log.commit([insert(table, id=0, Body="T"), insert(table, id=-1, note="T")])
    first = log.ends[-1]
    log.commit([update(table, "Body", was=place, id=place + 1, a=place) for place in range(500)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    destination.write_events(log.batch(first))
    assert rows_of(destination.path, table, 'id, a, "Body"') == [(-1, None, None), (500, 499, "T")]


def test_a_copy_and_then_what_its_snapshot_did_not_see(
    log: SmallLog, started: Callable[..., DuckDBDestination], tmp_path: Path
) -> None:
    """Hand-over (SEMANTICS 8): by transaction, not by position; taken twice it changes nothing."""
    table, other = shape("full", key=False), shape("default", key=True, id_=5002, name="other")
    log.commit([insert(table, id=1), insert(other, id=1)])
    seen, xid = log.ends[-1], log.xid
    log.commit([insert(table, id=2)])
    log.commit([insert(table, id=3)])
    log.commit([insert(table, id=4), insert(other, id=4)])
    log.close_segment()
    # The snapshot sees the third transaction, while the second was still open.
    snapshot = f"{xid + 1}:{xid + 3}:{xid + 1}"
    destination = started()
    destination.write_events(log.batch(log.start, seen, TableRange(other.id, log.start)))
    destination.drop_table_for_copy(table)
    rows = copied(table, [{"id": 1}, {"id": 3}], tmp_path / "landed.parquet", log.ends[2])
    destination.write_table_rows(table, rows)
    assert destination.applied_lsn(table.id) is None

    catch_up = log.batch(log.start, log.ends[2], TableRange(table.id, log.start, unseen_by=snapshot))
    assert destination.write_events(catch_up).rows == 1
    assert destination.write_events(catch_up).rows == 0
    assert destination.applied_lsn(table.id) == log.ends[2]
    assert destination.applied_lsn(None) == seen, "the others have not moved"
    together = log.batch(seen, log.ends[3], TableRange(table.id, log.ends[2]), TableRange(other.id, seen))
    destination.write_events(together)
    assert rows_of(destination.path, table, "id") == [(1,), (2,), (3,), (4,)]
    assert rows_of(destination.path, other, "id") == [(1,), (4,)]
    assert destination.applied_lsn(None) == destination.applied_lsn(other.id) == log.ends[3]

    destination.drop_table_for_copy(table)
    assert destination.applied_lsn(table.id) is None
    assert rows_of(destination.path, table, "id") == [(1,), (2,), (3,), (4,)], "readable until the new copy is there"


def test_a_table_without_changes_moves_along(
    log: SmallLog, started: Callable[..., DuckDBDestination], tmp_path: Path
) -> None:
    quiet, busy = shape("default", key=True), shape("default", key=True, id_=5002, name="busy")
    log.commit([insert(busy, id=1)])
    log.close_segment()
    destination = started()
    destination.write_table_rows(quiet, copied(quiet, [], tmp_path / "landed.parquet", log.start))
    destination.write_events(log.batch(None, None, TableRange(quiet.id, log.start), TableRange(busy.id, log.start)))
    assert destination.applied_lsn(quiet.id) == log.ends[-1]


def test_a_change_that_does_not_fit_the_copy_names_the_table(
    log: SmallLog, started: Callable[..., DuckDBDestination], tmp_path: Path
) -> None:
    """In a copied table a missing row is a mistake; where there was no copy it was there before."""
    keyed, loose = shape("default", key=True), shape("full", key=False, id_=5002, name="loose")
    log.commit([update(keyed, "Body", id=1, a=7)])
    gone = {"old": {column.name: None for column in loose.columns}, "old_kind": "row"}
    log.commit([(loose, 1, {"op": "delete", **gone})])
    log.close_segment()
    destination = started()
    assert destination.write_events(log.batch()).rows == 2
    assert rows_of(destination.path, keyed, 'id, a, "Body"') == [(1, 7, None)]
    for table in (keyed, loose):
        destination.write_table_rows(table, copied(table, [], tmp_path / f"{table.id}.parquet", log.start))
        with pytest.raises(DestinationError, match="are not there") as caught:
            destination.write_events(log.batch(None, None, TableRange(table.id, log.start)))
        assert caught.value.context["table"] == str(table.name)
        assert destination.applied_lsn(table.id) is None


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
@pytest.mark.parametrize("identity", ["default", "index", "full", "nothing"])
def test_of_a_key_that_is_inserted_twice_the_last_row_stays(
    log: SmallLog,
    started: Callable[..., DuckDBDestination],
    identity: str,
    small_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The delete between was not published."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    table = shape(identity, key=True)
    log.commit([insert(table, id=1, a=1), insert(table, id=2, a=2), insert(table, id=1, a=3)])
    first = log.ends[-1]
    log.commit([insert(table, id=2, a=4)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    assert rows_of(destination.path, table, "id, a") == [(1, 3), (2, 2)]
    destination.write_events(log.batch(first))
    assert rows_of(destination.path, table, "id, a") == [(1, 3), (2, 4)]


def let_in(schema: TableSchema, *unchanged: str, **row: Any) -> tuple[TableSchema, int, Row]:
    """An update by which a row comes into the publication's row filter: an insert with values left out."""
    _, version, change = insert(schema, **row)
    return (schema, version, {**change, "unchanged": list(unchanged)})


def delete(schema: TableSchema, old_kind: str = "key", **old: Any) -> tuple[TableSchema, int, Row]:
    image = {column.name: old.get(column.name) for column in schema.columns}
    return (schema, 1, {"op": "delete", "old": image, "old_kind": old_kind})


UNSENT = {
    "alone": lambda t: [let_in(t, "Body", id=1)],
    "with another": lambda t: [let_in(t, "Body", id=1), insert(t, id=2, Body="T")],
    "and then updated": lambda t: [let_in(t, "Body", id=1), update(t, "Body", id=1, a=5)],
    "and then under another key": lambda t: [let_in(t, "Body", id=1), update(t, "Body", was=1, id=5)],
    "after it was there": lambda t: [insert(t, id=1, Body="T"), delete(t, id=1), let_in(t, "Body", id=1)],
    "after another had the key": lambda t: [
        insert(t, id=1, Body="T"), update(t, "Body", was=1, id=3), let_in(t, "Body", id=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
@pytest.mark.parametrize("history", UNSENT)
def test_a_value_that_was_never_sent_is_refused_and_not_null(
    log: SmallLog,
    started: Callable[..., DuckDBDestination],
    tmp_path: Path,
    history: str,
    small_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    table = shape("default", key=True)
    log.commit(UNSENT[history](table))
    log.close_segment()
    destination = started()
    destination.write_table_rows(table, copied(table, [{"id": 7}], tmp_path / "landed.parquet", log.start))
    with pytest.raises(UnsentValueError, match="Body") as caught:
        destination.write_events(log.batch(None, None, TableRange(table.id, log.start)))
    assert "note" not in caught.value.message
    assert caught.value.context["table_id"] == table.id
    assert rows_of(destination.path, table, "id") == [(7,)]


def test_a_value_that_comes_after_the_row_and_one_that_nobody_wants_are_not_missed(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    table = shape("default", key=True)
    log.commit(
        [
            let_in(table, "Body", id=1),
            update(table, id=1, Body="T one"),
            update(table, "Body", id=1, a=1),
            let_in(table, "Body", id=2),
            update(table, id=2, Body="T two"),
            update(table, "Body", was=2, id=22),
            let_in(table, "Body", id=3),
            delete(table, id=3),
            let_in(table, "Body", id=4),
            insert(table, id=4, Body="T four"),
        ]
    )
    log.close_segment()
    destination = started()
    destination.write_events(log.batch())
    assert rows_of(destination.path, table, 'id, a, "Body"') == [
        (1, 1, "T one"), (4, None, "T four"), (22, None, "T two"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["key", "row"])
@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
def test_an_old_row_is_judged_by_what_it_holds_and_not_by_its_kind(
    log: SmallLog,
    started: Callable[..., DuckDBDestination],
    kind: str,
    small_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition's changes have the kind of its root: a key may be called a row, and a row a key."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    keyed, loose = shape("full", key=True), shape("default", key=False, id_=5002, name="loose")
    first = log.commit([insert(keyed, id=1, Body="T one"), insert(loose, id=1, Body="T two")])
    log.commit(
        [
            (keyed, 1, {**update(keyed, "Body", was=1, id=2, a=5)[2], "old_kind": kind}),
            (
                loose,
                1,
                {**update(loose, "Body", id=2)[2], **delete(loose, kind, id=1, Body="T two")[2], "op": "update"},
            ),
        ]
    )
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    destination.write_events(log.batch(first))
    assert rows_of(destination.path, keyed, 'id, a, "Body"') == [(2, 5, "T one")]
    assert rows_of(destination.path, loose, 'id, "Body"') == [(2, "T two")]


def test_without_a_key_a_value_that_was_not_sent_is_refused(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    table = shape("full", key=False)
    log.commit([let_in(table, "Body", id=1)])
    log.close_segment()
    with pytest.raises(UnsentValueError, match="Body"):
        started().write_events(log.batch())


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
@pytest.mark.parametrize("whole", [True, False], ids=["copied", "made by changes"])
@pytest.mark.parametrize("identity, key", [("default", True), ("full", True), ("full", False)])
def test_a_row_that_is_named_by_other_columns_than_its_key_is_refused(
    log: SmallLog,
    started: Callable[..., DuckDBDestination],
    tmp_path: Path,
    identity: str,
    key: bool,
    whole: bool,
    small_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a partition does whose replica identity is another index than its root's key."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    table = shape(identity, key=key)
    moved = (table, 1, {**update(table, id=5)[2], **{k: v for k, v in delete(table, a=1)[2].items() if k != "op"}})
    for change in (delete(table, a=1), moved):
        log.commit([change])
        log.close_segment()
    destination = started()
    if whole:
        rows = [{"id": 1, "a": 1}]
        destination.write_table_rows(table, copied(table, rows, tmp_path / "landed.parquet", log.start))
    for after, to in ((log.start, log.ends[0]), (log.ends[0], log.ends[1])):
        kind = UnnamedRowError if key or not whole else MissingRowError
        with pytest.raises(kind) as caught:
            destination.write_events(log.batch(None, to, TableRange(table.id, after)))
        assert "partition" in caught.value.hint
        assert "set its REPLICA IDENTITY to FULL" not in caught.value.hint, "it is set already, or has a key"


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["streamed", "at once"])
def test_an_infinite_interval_is_treated_by_policy(
    log: SmallLog, started: Callable[..., DuckDBDestination], small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    table = shape("default", key=True, intervals=True)
    log.commit([insert(table, id=1, took=FOREVER), insert(table, id=2, took=MONTH)])
    log.close_segment()
    with pytest.raises(SpecialValueError) as caught:
        started(special_values="error").write_events(log.batch())
    assert caught.value.context["table"] == str(table.name)
    destination = started()
    destination.write_events(log.batch())
    assert rows_of(destination.path, table, "id, CAST(took AS VARCHAR)") == [(1, None), (2, "1 month")]


def test_a_zero_that_changes_its_sign_and_a_month_that_becomes_thirty_days(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    """DuckDB calls them equal."""
    table = shape("default", key=True, intervals=True)
    first = log.commit([insert(table, id=1, f=0.0, took=MONTH)])
    log.commit([update(table, id=1, f=-0.0, took=DAYS)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    destination.write_events(log.batch(first))
    assert rows_of(destination.path, table, "CAST(f AS VARCHAR), CAST(took AS VARCHAR)") == [("-0.0", "30 days")]


def test_old_changes_do_not_bring_an_old_shape_back(
    log: SmallLog, started: Callable[..., DuckDBDestination], tmp_path: Path
) -> None:
    """A copy of the new shape, then changes of the old one: they leave the column alone that they do not have."""
    old = shape("default", key=True)
    new = replace(old, columns=(*old.columns[:-1], Column("later", TEXT, attnum=6)))
    log.commit([update(old, id=1, a=1, note="gone"), insert(old, id=2, a=2)])
    log.close_segment()
    destination = started()
    rows = copied(new, [{"id": 1, "later": "kept"}], tmp_path / "landed.parquet", Lsn(log.lsn + 100))
    destination.write_table_rows(new, rows)
    destination.write_events(log.batch())
    assert rows_of(destination.path, new, "id, a, later") == [(1, 1, "kept"), (2, 2, None)]


def test_columns_that_exchange_their_names_and_a_table_that_gets_another(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    table = shape("default", key=True)
    log.commit([insert(table, id=1, Body="body", note="note")])
    swapped = {3: "note", 5: "Body"}
    columns = tuple(replace(c, name=swapped.get(c.attnum, c.name)) for c in table.columns)
    renamed = replace(table, columns=columns, name=TableName("odd schema", "it's new"))
    schema, _, change = insert(renamed, id=2, Body="b", note="n")
    log.commit([(schema, 2, change)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch())
    assert rows_of(destination.path, renamed, 'id, "Body", note') == [(1, "note", "body"), (2, "b", "n")]


def test_a_name_that_another_table_has_taken_over(log: SmallLog, started: Callable[..., DuckDBDestination]) -> None:
    """Dropped in Postgres and made anew: what was there is put aside, and not mixed with the new one's rows."""
    old, new = shape("default", key=True), shape("default", key=True, id_=6001)
    log.commit([insert(old, id=1)])
    log.commit([insert(new, id=2)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch())
    assert rows_of(destination.path, new, "id") == [(2,)]
    aside = replace(old, name=TableName("odd schema", f"t {old.id}"))
    assert rows_of(destination.path, aside, "id") == [(1,)]


def test_a_program_that_has_the_file_open_itself_shares_it(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    table = shape("default", key=True)
    log.commit([insert(table, id=1)])
    log.close_segment()
    destination = started()
    with duckdb.connect(str(destination.path)) as mine:
        destination.write_events(log.batch())
        assert mine.execute('SELECT id FROM "odd schema".t').fetchall() == [(1,)]
        assert mine.execute("SELECT applied_lsn FROM _walrelay.applied").fetchall() == [(str(log.ends[-1]),)]


def test_the_file_says_where_it_stands_to_whoever_opens_it(
    log: SmallLog, started: Callable[..., DuckDBDestination]
) -> None:
    table = shape("default", key=True)
    log.commit([insert(table, id=1)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch())
    with duckdb.connect(str(destination.path), read_only=True) as reader:
        assert reader.execute("SELECT applied_lsn FROM _walrelay.applied").fetchall() == [(str(log.ends[-1]),)]
        asked = "SELECT table_id, table_name, applied_lsn FROM _walrelay.progress WHERE table_id <> 0"
        assert reader.execute(asked).fetchall() == [(table.id, str(table.name), str(log.ends[-1]))]


def test_files_that_compaction_replaces_meanwhile_are_looked_up_again(
    log: SmallLog, started: Callable[..., DuckDBDestination], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch lists the files, then they are merged and gone before DuckDB opens them."""
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", 0)
    table = shape("default", key=True)
    for key in range(4):
        log.commit([insert(table, id=key)])
        log.close_segment()
    batch = log.batch()
    listed = batch.log.entries(log.start, log.ends[-1])
    answers = [listed]
    monkeypatch.setattr(batch.log, "entries", lambda *_: answers.pop() if answers else LogReader(log.root).entries())
    settings = CompactionSettings(fan_in=4, grace_seconds=0)
    compactor = Compactor(log.storage, Manifest(log.storage), 2, settings)
    assert compactor.run_once() == 1
    compactor.run_once()
    destination = started()
    assert destination.write_events(batch).rows == 4
    assert rows_of(destination.path, table, "id") == [(0,), (1,), (2,), (3,)]


def test_after_a_shutdown_the_file_alone_holds_everything(
    log: SmallLog, started: Callable[..., DuckDBDestination], tmp_path: Path
) -> None:
    table = shape("default", key=True)
    log.commit([insert(table, id=1)])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch())
    destination.shutdown()
    assert not (tmp_path / "copy.duckdb.wal").exists()
    assert rows_of(destination.path, table, "id") == [(1,)]


@pytest.mark.parametrize("small_rows", [0, 1000], ids=["from files", "through arrow"])
def test_columns_may_be_called_what_our_own_statements_call_theirs(
    log: SmallLog, started: Callable[..., DuckDBDestination], small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_apply, "SMALL_ROWS", small_rows)
    odd = ("row", "old", "op", "q", "s", "n0", "k0", "rowid", "d", "unchanged", "old_kind", 'it\'s "odd"')
    columns = (Column("id", INT8, attnum=1), *(Column(name, TEXT, attnum=n) for n, name in enumerate(odd, 2)))
    table = replace(shape("default", key=True), columns=columns)
    first = log.commit([insert(table, id=1, **{name: f"T{name}" for name in odd}), insert(table, id=2)])
    log.commit([update(table, *odd, was=1, id=5), update(table, *odd[1:], id=5, row="new"), update(table, id=2, q="q")])
    log.close_segment()
    destination = started()
    destination.write_events(log.batch(log.start, first))
    destination.write_events(log.batch(first))
    expected = [
        {"id": 5, **{name: f"T{name}" for name in odd}, "row": "new"},
        {**dict.fromkeys(odd), "id": 2, "q": "q"},
    ]
    assert found(destination.path, table) == contents(table, expected)
