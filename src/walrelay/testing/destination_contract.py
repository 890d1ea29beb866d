"""One suite for every destination that holds tables. Subclass it, and it proves the contract of `destinations.base`:

    class TestMyDestination(DestinationContract):
        @pytest.fixture
        def destination_factory(self, tmp_path):
            return lambda: MyDestination(tmp_path / "place")

        def rows(self, destination, table):
            return [dict(row) for row in ...]  # what a reader finds under this name: public.orders, public."Odd one"

Each call of the factory opens the same place anew. Rows and changes come from a real Postgres through a real log. For
failures that explain themselves, `pytest.register_assert_rewrite("walrelay.testing.destination_contract",
"walrelay.testing.contract")` first. A destination that keeps what has happened instead: see `stream_contract`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from walrelay.destinations.base import Destination
from walrelay.errors import CopyAgainError
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.testing.contract.failures import ALL_TABLES, FailuresContract
from walrelay.testing.contract.fixtures import DestinationFactory, Opened
from walrelay.testing.contract.odd_names import OddNamesContract
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.special_values import SpecialValuesContract
from walrelay.testing.contract.stories import ALTERED, NAMES, STORIES
from walrelay.testing.contract.tables import as_text, names_table

__all__ = ["ContractSource", "DestinationContract", "DestinationFactory"]


class DestinationContract(SpecialValuesContract, OddNamesContract, FailuresContract):
    """The obligations of a destination that materializes, each as a test."""

    # ------------------------------------------------------------------------------------------------------- copies

    def test_it_says_what_it_is(self, destination: Destination) -> None:
        assert isinstance(destination, Destination)
        able = destination.capabilities
        assert able.materializes and able.takes_changes and able.lands_files and able.keeps_progress

    def test_no_rows_still_make_a_table(self, source: ContractSource, destination: Destination) -> None:
        self.copied(source, destination)
        assert self.held(destination) == {f"public.{table}": [] for table in NAMES}

    def test_a_copy_takes_the_place_of_what_was_there(self, source: ContractSource, destination: Destination) -> None:
        source.do("INSERT INTO keyed VALUES (1, 'old', NULL), (2, 'old', 2)")
        assert source.copy(destination, "keyed").rows == 2
        source.do("DELETE FROM keyed", "INSERT INTO keyed VALUES (2, 'new', 3)")
        assert source.copy(destination, "keyed").rows == 1
        assert source.copy(destination, "keyed").rows == 1  # it may come again
        assert [as_text(row) for row in self.rows(destination, "public.keyed")] == source.contents()["public.keyed"]

    def test_tables_are_copied_side_by_side(self, source: ContractSource, destination: Destination) -> None:
        source.do("INSERT INTO keyed SELECT g FROM generate_series(1, 200) g", "INSERT INTO loose SELECT id FROM keyed")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda table: source.copy(destination, table), NAMES * 2))
        assert self.held(destination) == source.contents()

    def test_before_a_copy_it_forgets_how_far_the_table_was(
        self, source: ContractSource, destination: Destination
    ) -> None:
        self.copied(source, destination)
        source.do("INSERT INTO keyed VALUES (1, 'x', 1)")
        destination.write_events(source.batch())
        schema = source.schema("keyed")
        assert destination.applied_lsn(schema.id) is not None
        destination.drop_table_for_copy(schema)
        destination.drop_table_for_copy(schema)
        assert destination.applied_lsn(schema.id) is None
        assert destination.applied_lsn(source.schema("loose").id) is not None

    # ------------------------------------------------------------------------------------------------------ changes

    @pytest.mark.parametrize("cut", ["in one batch", "commit by commit"])
    @pytest.mark.parametrize("story", list(STORIES))
    def test_changes_lead_to_what_the_source_holds(
        self, source: ContractSource, destination: Destination, story: str, cut: str
    ) -> None:
        self.copied(source, destination)
        source.do(*STORIES[story])
        position = source.batch().after
        for end in source.commits() if cut == "commit by commit" else [source.batch().to]:
            result = destination.write_events(source.batch(position, end))
            assert result.durable
            position = end
        assert self.held(destination) == source.contents()

    @pytest.mark.parametrize("story", list(STORIES))
    def test_a_batch_may_come_again(self, source: ContractSource, destination: Destination, story: str) -> None:
        """Wholly, or as part of a longer one: after a crash nobody knows what had been taken."""
        self.copied(source, destination)
        source.do(*STORIES[story])
        for end in source.commits():
            destination.write_events(source.batch(None, end))
            destination.write_events(source.batch(None, end))
        assert self.held(destination) == source.contents()

    def test_an_altered_table_is_followed_or_asked_for_again(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Several shapes in one batch. Who cannot follow says which table it is, and is given a copy."""
        self.copied(source, destination)
        source.do(*ALTERED)
        try:
            destination.write_events(source.batch())
        except CopyAgainError as error:
            assert names_table(error, source.schema("keyed")), "the others are to go on without it"
            source.copy(destination, "keyed")
        assert self.held(destination) == source.contents()

    def test_a_table_is_copied_while_others_take_changes(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Each by a thread of its own."""
        self.copied(source, destination)
        source.do(*ALL_TABLES)
        with ThreadPoolExecutor(3) as pool:
            copied = pool.submit(source.copy, destination, "keyed")
            taken = [
                pool.submit(destination.write_events, source.batch(tables=tables))
                for tables in (("loose",), ("paired", "coded"))
            ]
            assert all(one.result().settled().durable for one in [copied, *taken])
        assert self.held(destination) == source.contents()

    def test_it_knows_how_far_each_table_is(self, source: ContractSource, destination: Destination) -> None:
        self.copied(source, destination)
        source.do("INSERT INTO keyed VALUES (1, 'x', 1)")
        first = source.batch()
        destination.write_events(first)
        assert {destination.applied_lsn(one.table) for one in first.ranges or ()} == {first.to}
        source.do("INSERT INTO keyed VALUES (2, 'x', 1)")
        destination.write_events(source.batch(first.to))
        destination.write_events(first)  # an old one takes nothing back
        assert {destination.applied_lsn(one.table) for one in first.ranges or ()} == {source.batch().to}
        assert self.held(destination) == source.contents()

    def test_a_table_that_catches_up_takes_what_its_snapshot_has_not_seen(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Transactions that were open while it was copied; what the snapshot saw is in the log too."""
        source.do("INSERT INTO loose VALUES (1, 'seen')")
        with psycopg.connect(source.source.conninfo) as other:
            other.execute("INSERT INTO loose VALUES (2, 'open'); UPDATE loose SET note = 'open' WHERE n = 1")
            with exported_snapshot(source.source, application="walrelay contract") as snapshot:
                for table in NAMES:
                    source.copy(destination, table, snapshot)
                visible = snapshot.visible
        source.do("INSERT INTO loose VALUES (3, 'later')")
        destination.write_events(source.batch(unseen_by=visible))
        assert self.held(destination) == source.contents()

    # --------------------------------------------------------------------------------------------------------- life

    def test_what_was_durable_is_there_when_it_is_opened_again(self, source: ContractSource, opened: Opened) -> None:
        if not self.durable:
            pytest.skip("it forgets when it is let go")
        with opened() as destination:
            self.copied(source, destination)
            source.do(*STORIES["updates and deletes"])
            destination.write_events(source.batch())
        with opened() as destination:
            assert destination.applied_lsn(source.schema("keyed").id) == source.batch().to
            destination.write_events(source.batch())
            assert self.held(destination) == source.contents()

    def test_it_can_be_let_go_more_than_once(self, destination: Destination) -> None:
        destination.shutdown()
        destination.shutdown()
