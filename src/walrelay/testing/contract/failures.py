"""What goes wrong around a write: its answer is lost, or one table of several cannot be taken."""

from __future__ import annotations

import pytest

from walrelay.destinations.base import Destination
from walrelay.errors import WalrelayError
from walrelay.testing.contract.fixtures import DestinationFactory, Opened
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.stories import LONG, NAMES, STORIES
from walrelay.testing.contract.tables import TablesFixtures, names_table
from walrelay.testing.faults import FaultyDestination, PassingFaultError

ALL_TABLES = [
    *STORIES["keys that move"],
    *STORIES["equal rows without a key"],
    *STORIES["rows that are named by another index than the primary key"],
]
"""Stories that together concern every table, and not the same one twice."""


class FailuresContract(TablesFixtures):
    """Of the obligations **Again** and **Errors**."""

    def test_a_copy_whose_answer_was_lost_comes_again(
        self, source: ContractSource, destination_factory: DestinationFactory, opened: Opened
    ) -> None:
        source.do("INSERT INTO keyed VALUES (1, 'x', 1)", "INSERT INTO loose VALUES (1, 'same'), (1, 'same')")
        faulty = FaultyDestination(destination_factory())
        faulty.lose_response("write_table_rows", times=2)
        with opened(made=faulty):
            for table in ("keyed", "loose"):
                with pytest.raises(PassingFaultError):
                    source.copy(faulty, table)
        assert faulty.done["write_table_rows"] == 2
        with opened(made=None if self.durable else faulty.inner) as destination:
            self.copied(source, destination)
            assert self.held(destination) == source.contents()

    def test_changes_whose_answer_was_lost_are_not_taken_twice(
        self, source: ContractSource, destination_factory: DestinationFactory, opened: Opened
    ) -> None:
        faulty = FaultyDestination(destination_factory())
        with opened(made=faulty):
            self.copied(source, faulty)
            source.do(*ALL_TABLES)
            faulty.lose_response("write_events", times=1)
            with pytest.raises(PassingFaultError):
                faulty.write_events(source.batch())
        assert faulty.done["write_events"] == 1
        with opened(made=None if self.durable else faulty.inner) as destination:
            destination.write_events(source.batch())
            assert self.held(destination) == source.contents()
            assert destination.applied_lsn(source.schema("loose").id) == source.batch().to

    def test_a_table_that_fails_says_so_and_the_others_go_on(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """A change leaves out a value, as that has not changed, of a row that is not there."""
        source.do(f"INSERT INTO keyed VALUES (1, {LONG}, 1)")
        self.copied(source, destination)
        source.do(f"INSERT INTO keyed VALUES (2, {LONG}, 2)")
        skipped = source.batch().to
        others = tuple(table for table in NAMES if table != "keyed")
        source.do("INSERT INTO loose VALUES (1, 'x')", "UPDATE keyed SET paid = 3 WHERE id = 2")
        source.do("INSERT INTO loose VALUES (1, 'x')", "INSERT INTO paired VALUES (1, 'x', NULL)")
        with pytest.raises(WalrelayError) as caught:
            destination.write_events(source.batch(skipped))
        assert names_table(caught.value, source.schema("keyed"))
        assert not caught.value.retryable, "time brings no row"
        destination.write_events(source.batch(skipped, tables=others))
        expected = source.contents()
        assert self.held(destination, others) == {name: rows for name, rows in expected.items() if "keyed" not in name}
        assert [row["id"] for row in self.rows(destination, "public.keyed")] == [1]
        assert destination.applied_lsn(source.schema("keyed").id) != source.batch().to
        source.copy(destination, "keyed")
        assert self.held(destination) == expected
