"""One suite for every destination that keeps what has happened. Subclass it, and it proves what a consumer relies on:

    class TestMyStream(StreamContract):
        @pytest.fixture
        def destination_factory(self, tmp_path):
            return lambda: MyStream(tmp_path / "place")

        def events(self, destination):
            return [StreamEvent(...) for one in ...]  # all changes, as a consumer finds them; within a table in order

        def copies(self, destination, table):
            return [dict(row) for row in ...]  # the rows of a table's copies

Each call of the factory opens the same place anew. Changes come from a real Postgres through a real log. What comes
twice after a crash has the position of its first time, so that a consumer can leave it out: `once` does that. For
failures that explain themselves, `pytest.register_assert_rewrite("walrelay.testing.stream_contract",
"walrelay.testing.contract")` first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Self

import pytest

from walrelay.destinations.base import Destination
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.testing.contract.failures import ALL_TABLES
from walrelay.testing.contract.fixtures import ContractFixtures, DestinationFactory, Opened, SourceFactory
from walrelay.testing.contract.odd_names import odd_changes, odd_ddl
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.special_values import expected_rows, shown, unheld
from walrelay.testing.contract.stories import (
    ALTERED,
    NAMES,
    ODD_COLUMNS,
    ODD_TABLES,
    SPECIAL_NAMES,
    SPECIAL_ROWS,
    SPECIAL_TABLES,
    STORIES,
)
from walrelay.testing.contract.tables import as_text
from walrelay.testing.faults import FaultyDestination, PassingFaultError
from walrelay.testing.replay import Replica
from walrelay.testing.sample import plain_row, take_sample

__all__ = ["DestinationFactory", "StreamContract", "StreamEvent", "once"]

KEYS = {"public.keyed": ("id",), "public.paired": ("a", "b"), "public.coded": ("code",)}
"""By what rows are told apart; those of `loose` by all their columns."""


@dataclass(frozen=True)
class StreamEvent:
    """A change as a consumer finds it; what its fields mean is said in `walrelay.model.changes.Change`."""

    table: TableName
    op: str
    commit_lsn: Lsn
    ordinal: int
    xid: int
    schema_version: int
    row: Mapping[str, Any] | None
    old: Mapping[str, Any] | None
    old_kind: str | None
    unchanged: Sequence[str]

    @property
    def position(self) -> tuple[Lsn, int]:
        """No two changes have the same one, and one change never has another."""
        return self.commit_lsn, self.ordinal

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self:
        """Of a line as `EventBatch.json_lines` gives it."""
        return cls(
            table=TableName.parse(line["table"]),
            op=line["op"],
            commit_lsn=Lsn.parse(line["commit_lsn"]),
            ordinal=line["ordinal"],
            xid=line["xid"],
            schema_version=line["schema_version"],
            row=line.get("row"),
            old=line.get("old"),
            old_kind=line.get("old_kind"),
            unchanged=line.get("unchanged") or (),
        )


def once(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    """Each change where it comes first: what a consumer makes of a stream that may say things again."""
    return list({event.position: event for event in reversed(list(events))}.values())[::-1]


class StreamContract(ContractFixtures):
    """The obligations of a destination that preserves the stream, each as a test."""

    def events(self, destination: Destination) -> list[StreamEvent]:
        """All changes that it has, as often as it has them; those of a table in the order in which they came."""
        raise NotImplementedError

    def copies(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        """All rows that came as copies of a table, as often as they came."""
        raise NotImplementedError

    def test_it_says_what_it_is(self, destination: Destination) -> None:
        assert isinstance(destination, Destination)
        assert destination.capabilities.kind == "stream" and destination.capabilities.takes_changes

    # ------------------------------------------------------------------------------------------------------- copies

    def test_tables_are_copied_side_by_side_and_every_row_arrives(
        self, source: ContractSource, destination: Destination
    ) -> None:
        source.do("INSERT INTO keyed SELECT g FROM generate_series(1, 200) g", "INSERT INTO loose SELECT id FROM keyed")
        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(lambda table: source.copy(destination, table).settled(), NAMES))
        assert all(result.durable for result in results)
        expected = source.contents()
        for table in (f"public.{name}" for name in NAMES):
            assert sorted(as_text(row) for row in self.copies(destination, table)) == expected[table]
        assert self.events(destination) == [], "a row that was there before is no change"

    # ------------------------------------------------------------------------------------------------------ changes

    @pytest.mark.parametrize("story", list(STORIES))
    def test_every_change_arrives_in_commit_order_and_leads_to_what_the_source_holds(
        self, source: ContractSource, destination: Destination, story: str
    ) -> None:
        source.do(*STORIES[story])
        position = source.batch().after
        for end in source.commits():
            assert destination.write_events(source.batch(position, end)).settled().durable
            position = end
        found = self.events(destination)
        assert len(found) == len(once(found)), "no batch came twice"
        assert_tells_all(source, found)

    def test_a_truncate_is_an_event(self, source: ContractSource, destination: Destination) -> None:
        source.do(*STORIES["truncates"])
        destination.write_events(source.batch()).settled()
        found = self.events(destination)
        assert [one.op for one in found if one.table.name == "keyed"] == ["insert", "truncate", "insert"]
        assert [one.op for one in found if one.table.name == "loose"] == ["insert", "truncate"]

    def test_a_value_that_was_not_sent_again_is_said_to_be_unchanged(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """It is not NULL; who reads only the row could not tell."""
        source.do(*STORIES["values that are not sent again"])
        destination.write_events(source.batch()).settled()
        updates = [one for one in self.events(destination) if one.op == "update"]
        assert updates and all(list(one.unchanged) == ["note"] for one in updates)
        moved = [one.old["id"] for one in updates if one.old is not None]
        assert moved == [2], "the row that took another key is named by its old one"

    def test_an_altered_table_is_told_between_the_changes_that_it_parts(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Several shapes in one batch: each change has the columns of its own, and says which one that is."""
        source.do(*ALTERED)
        destination.write_events(source.batch()).settled()
        found = self.events(destination)
        shapes = [(one.schema_version, set(one.row)) for one in found if one.row is not None]
        columns = [{"id", "note", "paid"}, {"id", "note", "paid", "more"}, {"id", "words", "paid", "more"}]
        columns.append({"id", "words", "more"})
        assert [names for names, _ in groupby(names for _, names in shapes)] == columns
        assert [other > one for (one, _), (other, _) in pairwise(shapes)] == [
            one != other for (_, one), (_, other) in pairwise(shapes)
        ]

    def test_odd_names_are_kept(self, source_of: SourceFactory, destination: Destination) -> None:
        source = source_of(odd_ddl(), ODD_TABLES)
        source.do(*(statement for table in ODD_TABLES for statement in odd_changes(table, 11)))
        destination.write_events(source.batch()).settled()
        found = self.events(destination)
        assert {str(one.table) for one in found} == set(ODD_TABLES)
        assert {tuple(one.row) for one in found if one.row is not None} == {ODD_COLUMNS}
        assert_tells_all(source, found, dict.fromkeys(ODD_TABLES, ODD_COLUMNS[:1]))

    def test_special_values_are_told_or_are_null_and_counted(
        self, source_of: SourceFactory, destination: Destination
    ) -> None:
        source = source_of(SPECIAL_TABLES, SPECIAL_NAMES)
        source.do(SPECIAL_ROWS.format(1))
        result = destination.write_events(source.batch()).settled()
        rows = (dict(one.row) for one in self.events(destination) if one.row is not None)
        assert sorted(plain_row(shown(row)) for row in rows) == expected_rows(source, destination)
        treated = result.treated.get(source.schema("special").id, Counter())
        assert set(+treated) == unheld(destination)

    # -------------------------------------------------------------------------------------------------------- again

    def test_what_comes_again_has_the_position_that_it_had(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Wholly, or as part of a longer batch: after a crash nobody knows what had been taken."""
        source.do(*ALL_TABLES)
        for end in source.commits():
            destination.write_events(source.batch(None, end)).settled()
        found = self.events(destination)
        by_position: dict[tuple[Lsn, int], StreamEvent] = {}
        for event in found:
            assert by_position.setdefault(event.position, event) == event, "another change in its place"
        assert_tells_all(source, once(found))

    def test_changes_whose_answer_was_lost_arrive_all_the_same(
        self, source: ContractSource, destination_factory: DestinationFactory, opened: Opened
    ) -> None:
        source.do(*ALL_TABLES)
        faulty = FaultyDestination(destination_factory())
        faulty.lose_response("write_events", times=1)
        with opened(made=faulty), pytest.raises(PassingFaultError):
            faulty.write_events(source.batch())
        with opened(made=None if self.durable else faulty.inner) as destination:
            destination.write_events(source.batch()).settled()
            assert_tells_all(source, once(self.events(destination)))

    # --------------------------------------------------------------------------------------------------------- life

    def test_what_was_durable_is_there_when_it_is_opened_again(self, source: ContractSource, opened: Opened) -> None:
        if not self.durable:
            pytest.skip("it forgets when it is let go")
        source.do(*STORIES["updates and deletes"])
        with opened() as destination:
            assert destination.write_events(source.batch()).settled().durable
        with opened() as destination:
            before = source.batch().to
            source.do("INSERT INTO keyed VALUES (1000, 'later', NULL)")
            destination.write_events(source.batch(before)).settled()
            assert_tells_all(source, self.events(destination))

    def test_it_can_be_let_go_more_than_once(self, destination: Destination) -> None:
        destination.shutdown()
        destination.shutdown()


def assert_tells_all(
    source: ContractSource, events: list[StreamEvent], keys: Mapping[str, Sequence[str]] = KEYS
) -> None:
    """The same changes as in the log, those of a table in their order; and whoever follows them, and complains about
    each that does not fit, ends with what the source holds."""
    logged = list(source.batch().changes())
    for table in {change.table for change in logged} | {event.table for event in events}:
        said = [(event.commit_lsn, event.ordinal, event.op) for event in events if event.table == table]
        assert said == [(one.commit_lsn, one.ordinal, one.op) for one in logged if one.table == table]
    replica = Replica(keys)
    for event in events:
        replica.apply(event)
    assert replica.differences(take_sample(source.connection, "contract")) == []
