"""A replica follows every kind of change, and refuses each one that cannot be right."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from walrelay.decode.plain_rows import plain_rows
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.testing.replay import Change, Replica, postgres_text, replay
from walrelay.testing.sample import Sample, TableContents

T, LOOSE = "public.t", "public.loose"
KEYS = {T: ("id",), "public.pairs": ("a", "b")}


@dataclass(frozen=True)
class One:
    """A change; `at` is its position, in the log and in time."""

    at: int
    table: TableName
    op: str
    row: dict[str, Any] | None = None
    old: dict[str, Any] | None = None
    old_kind: str | None = None
    unchanged: tuple[str, ...] = ()
    schema_version: int = 1
    ordinal: int = 0

    @property
    def commit_lsn(self) -> Lsn:
        return Lsn(self.at)

    @property
    def end_lsn(self) -> Lsn:
        return Lsn(self.at + 1)

    @property
    def xid(self) -> int:
        return 700 + self.at


class Log:
    """Applies changes one after the other to a replica."""

    def __init__(self, replica: Replica | None = None) -> None:
        self.replica = replica or Replica(KEYS)
        self.at = 0

    def __call__(
        self,
        op: str,
        row: dict[str, Any] | None = None,
        old: dict[str, Any] | None = None,
        *,
        table: str = T,
        **more: Any,
    ) -> None:
        self.at += 1
        self.replica.apply(One(self.at, TableName.parse(table), op, row, old, **more))

    def rows(self, table: str = T) -> list[dict[str, str]]:
        return [dict(row) for row in self.replica.state().get(table, [])]


@pytest.fixture
def log() -> Log:
    return Log()


def sample(table: str = T, columns: tuple[str, ...] = ("id", "v"), *rows: tuple[str | None, ...]) -> Sample:
    return Sample("700:700:", Lsn(1), {table: TableContents(columns, list(rows))})


# ---------------------------------------------------------------------------------------------- with a key


def test_insert_update_delete_and_truncate_by_key(log: Log) -> None:
    log("insert", {"id": 1, "v": "a"})
    log("insert", {"id": 2, "v": None})
    log("update", {"id": 1, "v": "b"})
    assert log.rows() == [{"id": "1", "v": "b"}, {"id": "2"}]
    log("delete", old={"id": 2, "v": None}, old_kind="key")
    assert log.rows() == [{"id": "1", "v": "b"}]
    log("truncate")
    assert log.rows() == []


def test_a_key_change_moves_the_row(log: Log) -> None:
    log("insert", {"id": 1, "v": "a"})
    log("update", {"id": 9, "v": "a"}, {"id": 1, "v": None}, old_kind="key")
    assert log.rows() == [{"id": "9", "v": "a"}]
    log("insert", {"id": 1, "v": "again"})
    assert len(log.rows()) == 2


def test_update_keeps_unchanged_toast_column(log: Log) -> None:
    log("insert", {"id": 1, "v": "long", "n": 1})
    log("update", {"id": 1, "v": None, "n": 2}, unchanged=("v",))
    log("update", {"id": 5, "v": None, "n": 2}, {"id": 1, "v": None, "n": None}, old_kind="key", unchanged=("v",))
    assert log.rows() == [{"id": "5", "v": "long", "n": "2"}]


def test_a_key_of_two_columns_is_taken_whole(log: Log) -> None:
    log("insert", {"a": 1, "b": "x", "v": 1}, table="pairs")
    log("insert", {"a": 1, "b": "y", "v": 2}, table="pairs")
    log("update", {"a": 2, "b": "x", "v": 1}, {"a": 1, "b": "x", "v": None}, old_kind="key", table="pairs")
    assert log.rows("public.pairs") == [{"a": "1", "b": "y", "v": "2"}, {"a": "2", "b": "x", "v": "1"}]


def test_an_old_row_must_be_the_one_that_is_held(log: Log) -> None:
    log("insert", {"id": 1, "v": "a"})
    with pytest.raises(AssertionError, match="is not the old one"):
        log("update", {"id": 1, "v": "c"}, {"id": 1, "v": "b"}, old_kind="row")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"op": "insert", "row": {"id": 1, "v": "b"}}, "is there already"),
        ({"op": "update", "row": {"id": 2, "v": "b"}}, "no row with key"),
        ({"op": "delete", "old": {"id": 2, "v": None}, "old_kind": "key"}, "no row with key"),
        ({"op": "update", "row": {"id": 3, "v": "b"}, "old": {"id": 1}, "old_kind": "key"}, "is there already"),
        ({"op": "update", "row": {"id": None, "v": "b"}}, "the key"),
        ({"op": "update", "row": {"id": 1, "v": "b"}, "unchanged": ("v",)}, "which it calls unchanged"),
        ({"op": "insert", "row": {"id": 4, "v": None}, "unchanged": ("v",)}, "wants a whole row"),
        ({"op": "insert"}, "wants a whole row"),
        ({"op": "update"}, "wants a row"),
        ({"op": "delete"}, "wants an old row"),
        ({"op": "truncate", "row": {"id": 1, "v": "a"}}, "wants no row"),
        ({"op": "upsert", "row": {"id": 1, "v": "a"}}, "not a change we know"),
    ],
)
def test_what_cannot_be_right_is_refused_by_table_lsn_and_ordinal(change: dict[str, Any], complaint: str) -> None:
    log = Log()
    log("insert", {"id": 1, "v": "a"})
    log("insert", {"id": 3, "v": "a"})
    with pytest.raises(AssertionError, match=rf"{change['op']} of public.t at 0/3, ordinal 8, xid 703: .*{complaint}"):
        log(**change, ordinal=8)


@pytest.mark.parametrize(("at", "ordinal"), [(5, 3), (5, 2), (4, 9)])
def test_a_change_that_comes_twice_or_too_late_is_refused(at: int, ordinal: int) -> None:
    replica = Replica(KEYS)
    table = TableName.parse("t")
    replica.apply(One(5, table, "insert", {"id": 1}, ordinal=3))
    with pytest.raises(AssertionError, match="twice, or out of order"):
        replica.apply(One(at, table, "truncate", ordinal=ordinal))


# ------------------------------------------------------------------------------------------- without a key


def test_of_equal_rows_exactly_one_is_taken(log: Log) -> None:
    for _ in range(3):
        log("insert", {"v": "equal", "n": None}, table="loose")
    log("update", {"v": "other", "n": 1}, {"v": "equal", "n": None}, old_kind="row", table="loose")
    log("delete", old={"v": "equal", "n": None}, old_kind="row", table="loose")
    assert log.rows(LOOSE) == [{"n": "1", "v": "other"}, {"v": "equal"}]


def test_a_row_that_is_not_there_cannot_be_taken(log: Log) -> None:
    log("insert", {"v": "a", "n": None}, table="loose")
    with pytest.raises(AssertionError, match="no such row"):
        log("delete", old={"v": "a", "n": 1}, old_kind="row", table="loose")
    with pytest.raises(AssertionError, match="needs whole old rows"):
        log("update", {"v": "b", "n": None}, table="loose")


def test_unchanged_toast_columns_come_from_the_row_that_was_taken(log: Log) -> None:
    log("insert", {"v": "long", "n": 1}, table="loose")
    log("update", {"v": None, "n": 2}, {"v": "long", "n": 1}, old_kind="row", unchanged=("v",), table="loose")
    assert log.rows(LOOSE) == [{"n": "2", "v": "long"}]


# ------------------------------------------------------------------------------------- when columns change


def test_an_added_column_is_unknown_until_the_row_is_written(log: Log) -> None:
    log("insert", {"id": 1, "v": "a"})
    log("insert", {"id": 2, "v": "b", "extra": 7}, schema_version=2)
    columns = ("extra", "id", "v")
    assert log.replica.differences(sample(T, columns, ("5", "1", "a"), ("7", "2", "b"))) == []
    log("update", {"id": 1, "v": "a", "extra": 5}, schema_version=2)
    assert log.replica.differences(sample(T, columns, ("5", "1", "a"), ("7", "2", "b"))) == []
    assert log.replica.differences(sample(T, columns, (None, "1", "a"), ("7", "2", "b"))) == [
        "public.t: row ('1',) has extra 5, should be NULL"
    ]


def test_a_dropped_column_is_forgotten(log: Log) -> None:
    log("insert", {"id": 1, "v": "a", "extra": 7})
    log("insert", {"id": 2, "v": "b"}, schema_version=2)
    assert log.rows() == [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}]


def test_a_column_renamed_there_and_back_is_not_taken_for_the_old_one(log: Log) -> None:
    log("insert", {"v": "a", "extra": 1}, table="loose")
    log("insert", {"v": "a", "extra": 2}, table="loose")
    log("delete", old={"v": "a", "renamed": 1}, old_kind="row", table="loose")
    assert log.replica.differences(sample(LOOSE, ("extra", "v"), ("2", "a"))) == []


def test_a_default_that_only_the_old_row_shows_is_no_difference(log: Log) -> None:
    log("insert", {"v": "a"}, table="loose")
    log("update", {"v": "b", "extra": 7}, {"v": "a", "extra": 7}, old_kind="row", table="loose", schema_version=2)
    assert log.rows(LOOSE) == [{"extra": "7", "v": "b"}]


def test_rows_that_are_better_known_are_matched_first(log: Log) -> None:
    log("insert", {"v": "a"}, table="loose")
    log("insert", {"v": "a", "extra": 1}, table="loose")
    assert log.replica.differences(sample(LOOSE, ("extra", "v"), ("1", "a"), (None, "a"))) == []
    assert len(log.replica.differences(sample(LOOSE, ("extra", "v"), ("2", "a"), (None, "a")))) == 2


# ------------------------------------------------------------------------------------- compared with a sample


def test_state_equals_the_state_of_a_sample(log: Log) -> None:
    log("insert", {"id": 2, "v": "b"})
    log("insert", {"id": 10, "v": None})
    assert log.replica.state() == sample(T, ("id", "v"), ("10", None), ("2", "b")).state()


def test_differences_name_what_is_missing_too_many_or_other(log: Log) -> None:
    log("insert", {"id": 1, "v": "a"})
    log("insert", {"id": 2, "v": "b"})
    log("insert", {"v": "x"}, table="loose")
    held = Sample(
        "700:700:",
        Lsn(1),
        {
            T: TableContents(("id", "v"), [("2", "c" * 1000), ("3", "a")]),
            LOOSE: TableContents(("v",), [("x",), ("x",)]),
            "public.pairs": TableContents(("a", "b"), [("1", "1")]),
        },
    )
    assert log.replica.differences(held) == [
        "public.t: row ('3',) is missing",
        "public.t: row ('1',) is too many",
        f"public.t: row ('2',) has v b, should be {'c' * 160}… (1000 characters)",
        "public.loose: missing: (('v', 'x'),)",
        "public.pairs: row ('1', '1') is missing",
    ]
    assert log.replica.differences(sample()) == [
        "public.t: row ('1',) is too many",
        "public.t: row ('2',) is too many",
        "public.loose: not in the sample",
    ]


def test_replay_takes_what_one_sample_sees_and_the_earlier_one_does_not() -> None:
    table = TableName.parse("t")
    changes: list[Change] = [One(at, table, "insert", {"id": at, "v": None}) for at in range(1, 6)]
    earlier = Sample("702:704:703", Lsn(4), {T: TableContents(("id", "v"), [("1", None), ("2", None)])})
    later = Sample("705:705:", Lsn(6), {T: TableContents(("id", "v"), [(str(n), None) for n in (1, 2, 3, 4)])})
    assert replay(changes, KEYS, later).differences(later) == []
    # 701 and 702 are seen by the earlier one, 703 was in progress, 704 had not begun, 705 the later one does not see.
    assert replay(changes, KEYS, later, since=earlier).differences(later) == []


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-7, "-7"),
        (Decimal("0.00"), "0.00"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-12.50"), "-12.50"),
        (datetime(2024, 2, 29, 12, 0, tzinfo=UTC), "2024-02-29 12:00:00+00"),
        (datetime(2024, 2, 29, 12, 0, 0, 120, timezone(timedelta(hours=2))), "2024-02-29 10:00:00.00012+00"),
        (datetime(2024, 2, 29, 1, 2, 3, 500000), "2024-02-29 01:02:03.5"),
        (date(2024, 2, 29), "2024-02-29"),
        (b"\x00\xff", "\\x00ff"),
        (uuid.UUID(int=1), "\\x" + "0" * 31 + "1"),
        ([], "{}"),
        ([1, None, -3], "{1,NULL,-3}"),
        ([[1, 2], [3, 4]], "{{1,2},{3,4}}"),
        (["", "null", 'a"b', "a\\b", "a b", "a,b", "ok"], '{"","null","a\\"b","a\\\\b","a b","a,b",ok}'),
        ([True, False], "{t,f}"),
        ([datetime(2024, 1, 1, tzinfo=UTC)], '{"2024-01-01 00:00:00+00"}'),
        ('{"b": 1.50}', '{"b": 1.50}'),
    ],
)
def test_values_print_as_postgres_prints_them(value: Any, text: str) -> None:
    assert postgres_text(value) == text


def test_a_value_without_an_exact_text_is_refused() -> None:
    with pytest.raises(TypeError, match="no exact text for a float"):
        postgres_text(0.1)


def test_the_values_that_arrow_columns_give_are_taken_as_they_are(log: Log) -> None:
    token = uuid.UUID(int=2**127 + 5)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1], pa.int64()),
            pa.array([Decimal("3.10")], pa.decimal128(12, 2)),
            pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([token.bytes], pa.binary(16))),
            pa.array([[1, None]], pa.list_(pa.int32())),
            pa.array([True]),
        ],
        names=["id", "price", "moment", "token", "tags", "active"],
    )
    for row in plain_rows(batch):
        log("insert", row)
    assert log.rows() == [
        {
            "id": "1",
            "price": "3.10",
            "moment": "2024-01-01 00:00:00+00",
            "token": f"\\x{token.hex}",
            "tags": "{1,NULL}",
            "active": "true",
        }
    ]
