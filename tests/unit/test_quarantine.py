"""Changes that cannot be decoded, from the stream to the log and to the rule that holds their table."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from walrelay.capture.writer import LogWriter
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.config.choices import OnBadChanges
from walrelay.config.settings import capture_settings
from walrelay.errors import (
    BadBytesError,
    CopyAgainError,
    SpecialKeyError,
    SpecialValueError,
    UndecodedChangesError,
    WalrelayError,
)
from walrelay.log.compaction import CompactionSettings, Compactor
from walrelay.log.identity import write_lineage
from walrelay.log.lease import acquire
from walrelay.log.manifest import Manifest
from walrelay.log.quarantine import quarantined_changes, read_quarantine
from walrelay.log.reader import LogReader
from walrelay.log.schemas import Described
from walrelay.log.storage import open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.quarantine import FACT
from walrelay.model.schema import Column, PgType, TableSchema, TypeField
from walrelay.model.special import SpecialValues
from walrelay.stores.memory import MemoryStore
from walrelay.wire.pgoutput import Relation
from walrelay.wire.replication import StreamCutter, WholeTransactions
from walrelay.workers.quarantine import MOST_COPIES, QuarantineRule

INT4 = PgType(23, "int4")
NUMERIC = PgType(1700, "numeric", modifier=((10 << 16) | 2) + 4)
PAIRS, AMOUNTS = 7, 8
NAN = struct.pack(">hhHh", 0, 0, 0xC000, 0)
ONE = struct.pack(">hhHhh", 1, 0, 0, 2, 1)


def pair(width: int) -> PgType:
    return PgType(
        99, "pair", kind="composite", schema="public", fields=(*(TypeField(f"f{i}", INT4) for i in range(width)),)
    )


def schema(table: int, width: int) -> TableSchema:
    """Of `pairs`, whose composite has so many attributes, or of `amounts`, whose key is a numeric."""
    name, key, value = ("pairs", INT4, pair(width)) if table == PAIRS else ("amounts", NUMERIC, NUMERIC)
    columns = (Column("id", key), Column("value", value))
    return TableSchema(table, TableName("public", name), columns, ("id",), identity_columns=("id",))


def composite(*values: int) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(struct.pack(">Iii", 23, 4, one) for one in values)


def frame(message: bytes) -> bytes:
    return b"d" + struct.pack(">i", 29 + len(message)) + b"w" + bytes(24) + message


def inserted(table: int, *values: bytes) -> bytes:
    fields = b"".join(b"b" + struct.pack(">i", len(value)) + value for value in values)
    return b"I" + struct.pack(">I", table) + b"N" + struct.pack(">H", len(values)) + fields


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def described(table: int) -> bytes:
    name = b"pairs" if table == PAIRS else b"amounts"
    body = b"R" + struct.pack(">I", table) + b"public\0" + name + b"\0d" + struct.pack(">H", 2)
    return body + b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0value\0" + struct.pack(">Ii", 99, -1)


class Captured:
    """A log, written by the log's own writer from transactions given as messages."""

    def __init__(self, directory: Path, policy: SpecialValues = "null") -> None:
        self.storage = open_storage(directory)
        self.width = 2
        """How many attributes the catalog says that the composite has."""
        self.described = 0
        self._policy = policy
        self._next = 100
        write_lineage(self.storage, Lineage("s", "1", 1, Lsn(100)))

    def take(self, *transactions: list[bytes]) -> None:
        """Each transaction is a segment; its xid counts up from 1001."""
        with acquire(self.storage, "test") as lease:
            writer = LogWriter(
                self.storage,
                lease,
                Manifest(self.storage),
                created_lsn=Lsn(100),
                settings=capture_settings(special_values=self._policy),
                describe=lambda relation, _lsn, _xid: Described(self._describe(relation)),
            )
            for messages in transactions:
                for piece in self._pieces(messages):
                    writer.take(piece)
                writer.publish()

    def _describe(self, relation: Relation) -> TableSchema:
        self.described += 1
        return schema(relation.id, self.width)

    def _pieces(self, messages: list[bytes]) -> list[WholeTransactions]:
        commit, end = self._next, self._next + 10
        self._next += 100
        begin = b"B" + struct.pack(">qqI", commit, 0, 1000 + commit // 100)
        done = b"C\0" + struct.pack(">qqq", commit, end, 0)
        data = b"".join(map(frame, (begin, described(PAIRS), described(AMOUNTS), *messages, done)))
        cutter = StreamCutter()
        cutter.room()[: len(data)] = data
        cutter.received(len(data))
        pieces = list(cutter.pieces())
        assert all(isinstance(piece, WholeTransactions) for piece in pieces)
        return pieces  # type: ignore[return-value]

    @property
    def reader(self) -> LogReader:
        return LogReader(self.storage)

    def ids(self, table: str = "public.pairs") -> list[int]:
        return [change.row["id"] for change in self.reader.changes() if change.row and str(change.table) == table]

    def batch(self, *ranges: TableRange, to: int | None = None) -> EventBatch:
        end = self.reader.end() if to is None else Lsn(to)
        return EventBatch(self.reader, Lsn(100), end, ranges or None)


def rows(good: range, width: int, bad: tuple[int, ...] = ()) -> list[bytes]:
    return [inserted(PAIRS, number(one), composite(*range(width + (one in bad)))) for one in good]


def test_good_rows_go_on_in_order_and_bad_ones_are_kept_as_they_came(tmp_path: Path) -> None:
    log = Captured(tmp_path)
    bad = (0, 17, 18, 500, 999)
    messages = rows(range(1000), 2, bad)
    log.take(messages, [inserted(AMOUNTS, ONE, ONE)])
    assert log.ids() == [one for one in range(1000) if one not in bad]
    found = quarantined_changes(log.reader)
    assert [one.key for one in found] == [f'{{"id":{one}}}' for one in bad]
    assert [one.ordinal for one in found] == list(bad)
    assert {(one.name, one.op, one.code, one.commit_lsn, one.end_lsn, one.xid) for one in found} == {
        ("public.pairs", "insert", "wire.bad_bytes", Lsn(100), Lsn(110), 1001)
    }
    assert found[0].reason == "not a composite of 2 attributes, in column value of public.pairs"
    table = read_quarantine(log.reader, Lsn(100), log.reader.end(), ("end_lsn", "ordinal", "message"))
    assert dict(zip(table["ordinal"].to_pylist(), table["message"].to_pylist(), strict=True)) == {
        one: messages[one] for one in bad
    }
    assert len(list(log.reader.changes())) == 996, "the other table's change is there"


def test_rows_of_an_altered_type_are_read_by_its_new_description(tmp_path: Path) -> None:
    log = Captured(tmp_path)
    log.take(rows(range(3), 2))
    log.width = 3
    # The description is of before the first message of the connection only if the type was altered meanwhile.
    flips = iter([2])

    def late(relation: Relation, describe: Callable[[Relation], TableSchema] = log._describe) -> TableSchema:
        return replace(describe(relation), columns=schema(relation.id, next(flips, 3)).columns)

    log._describe = late  # type: ignore[method-assign]
    log.take([*rows(range(3, 6), 2), *rows(range(6, 9), 3), *rows(range(9, 10), 2), *rows(range(10, 12), 3)])
    assert log.ids() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert [one.key for one in quarantined_changes(log.reader)] == ['{"id":9}']
    widths = [len(change.row["value"]) for change in log.reader.changes() if change.row]
    assert widths == [2] * 6 + [3] * 5


def test_a_value_sent_in_another_form_is_its_tables_affair(tmp_path: Path) -> None:
    log = Captured(tmp_path)
    as_text = b"I" + struct.pack(">I", PAIRS) + b"N\0\2" + b"b" + number(4) + number(5) + b"t" + number(3) + b"(1)"
    log.take([*rows(range(2), 2), as_text])
    assert log.ids() == [0, 1]
    (found,) = quarantined_changes(log.reader)
    assert (found.key, found.code) == (None, "wire.bad_bytes")


def test_a_row_with_too_few_fields_is_an_error_of_the_stream(tmp_path: Path) -> None:
    with pytest.raises(BadBytesError, match="does not fit the table's description"):
        Captured(tmp_path).take([inserted(PAIRS, number(1))])


@pytest.mark.parametrize("policy", ["null", "error"])
def test_special_values_are_counted_in_the_log_or_refused_and_keys_always(
    tmp_path: Path, policy: SpecialValues
) -> None:
    log = Captured(tmp_path, policy)
    log.take([inserted(AMOUNTS, ONE, NAN), inserted(AMOUNTS, NAN, ONE)], [inserted(AMOUNTS, ONE, ONE)])
    codes = [one.code for one in quarantined_changes(log.reader)]
    treated = {"public.amounts": {"NUMERIC_NAN": 1}} if policy == "null" else {}
    assert codes == (["value.special_key"] if policy == "null" else ["value.special", "value.special_key"])
    assert log.reader.treated() == treated
    log.take([inserted(AMOUNTS, ONE, NAN)], [inserted(AMOUNTS, ONE, ONE)])
    if policy == "null":
        assert log.reader.treated() == {"public.amounts": {"NUMERIC_NAN": 2}}, "also by another writer"


def test_compaction_merges_the_quarantine_and_keeps_the_counts(tmp_path: Path) -> None:
    log = Captured(tmp_path)
    log.take(*(rows(range(one, one + 4), 2, bad=(one,)) for one in range(0, 32, 4)), [inserted(AMOUNTS, ONE, NAN)])
    before, changes = quarantined_changes(log.reader), list(log.reader.changes())
    merged = Compactor(log.storage, Manifest(log.storage), 99, CompactionSettings(fan_in=9)).run_once()
    assert merged == 1
    assert len(log.reader.entries()) == 1
    assert quarantined_changes(log.reader) == before
    assert len(before) == 8
    assert list(log.reader.changes()) == changes
    assert list(log.reader.messages()) == []
    assert log.reader.treated() == {"public.amounts": {"NUMERIC_NAN": 1}}


# ------------------------------------------------------------------------------------------------------------ the rule


def refused(rule: QuarantineRule, batch: EventBatch) -> WalrelayError | None:
    found = rule.within(batch, batch.entries())
    try:
        rule.check(batch, found)
    except WalrelayError as error:
        return error
    rule.passed(batch, found)
    return None


@pytest.fixture
def log(tmp_path: Path) -> Captured:
    """Transactions 1001 to 1004 that end at 110, 210, 310 and 410; the second has two bad changes of `pairs`."""
    made = Captured(tmp_path)
    made.take(rows(range(4), 2), rows(range(4, 8), 2, bad=(5, 6)), rows(range(8, 9), 2), [inserted(AMOUNTS, ONE, ONE)])
    return made


@pytest.mark.parametrize(("policy", "kind"), [("copy", CopyAgainError), ("error", UndecodedChangesError)])
def test_the_table_alone_is_refused_and_named(log: Captured, policy: OnBadChanges, kind: type[WalrelayError]) -> None:
    rule = QuarantineRule(MemoryStore(), policy)
    error = refused(rule, log.batch(TableRange(AMOUNTS, Lsn(100)), TableRange(PAIRS, Lsn(100))))
    assert type(error) is kind
    assert (error.context["table_id"], error.context["table"], error.context["changes"]) == (PAIRS, "public.pairs", 2)
    assert "2 changes of public.pairs could not be decoded" in error.message
    assert "in column value" in error.message
    assert refused(rule, log.batch(TableRange(AMOUNTS, Lsn(100)))) is None
    assert type(refused(rule, log.batch())) is kind, "all tables take part"


def test_what_a_table_has_passed_or_its_copy_has_seen_does_not_hold_it(log: Captured) -> None:
    store = MemoryStore()
    rule = QuarantineRule(store, "error")
    assert refused(rule, log.batch(TableRange(PAIRS, Lsn(210)))) is None
    assert refused(rule, log.batch(TableRange(PAIRS, Lsn(100)), to=110)) is None
    unseen = TableRange(PAIRS, Lsn(100), unseen_by="1002:1005:1002")
    assert refused(rule, log.batch(unseen)) is not None
    assert store.get_facts(FACT)[PAIRS] == {"held": "0/D2"}
    assert refused(rule, log.batch(replace(unseen, unseen_by="1003:1005:1003"))) is None
    assert store.get_facts(FACT)[PAIRS] == {"settled": str(log.reader.end())}


def test_what_was_dropped_does_not_hold_a_table_but_what_comes_later_does(log: Captured) -> None:
    store = MemoryStore()
    rule = QuarantineRule(store, "error")
    store.store_fact(PAIRS, FACT, {"dropped": "0/D2"})
    assert refused(rule, log.batch()) is None
    log.take(rows(range(9, 10), 2, bad=(9,)))
    assert refused(rule, log.batch()) is not None


def test_a_table_is_not_copied_for_ever(log: Captured) -> None:
    now = 0.0
    rule = QuarantineRule(MemoryStore(), "copy", clock=lambda: now)
    kinds = [type(refused(rule, log.batch(TableRange(PAIRS, Lsn(100))))) for _ in range(MOST_COPIES + 1)]
    assert kinds == [CopyAgainError] * MOST_COPIES + [UndecodedChangesError]
    now = 1e6
    assert type(refused(rule, log.batch(TableRange(PAIRS, Lsn(100))))) is CopyAgainError


def test_values_that_no_copy_could_take_either_are_an_error_by_any_policy(tmp_path: Path) -> None:
    log = Captured(tmp_path, "error")
    log.take([inserted(AMOUNTS, ONE, NAN)], [inserted(AMOUNTS, NAN, ONE)])
    rule = QuarantineRule(MemoryStore(), "copy")
    first = refused(rule, log.batch(TableRange(AMOUNTS, Lsn(100)), to=110))
    assert type(first) is SpecialValueError
    assert "numeric NaN, in column value of public.amounts" in first.message
    assert type(refused(rule, log.batch(TableRange(AMOUNTS, Lsn(100))))) is SpecialKeyError
