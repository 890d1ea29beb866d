"""Every destination that holds tables keeps the destination contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import Destination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.memory import MemoryDestination

pytest.register_assert_rewrite("walrelay.testing.destination_contract", "walrelay.testing.contract")
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory  # noqa: E402

pytestmark = pytest.mark.postgres


class TestMemoryDestination(DestinationContract):
    durable = False

    @pytest.fixture
    def destination_factory(self) -> DestinationFactory:
        return MemoryDestination

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        assert isinstance(destination, MemoryDestination)
        return destination.rows(table)


class TestDuckDBDestination(DestinationContract):
    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: DuckDBDestination(tmp_path / "it's a file.duckdb")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        assert isinstance(destination, DuckDBDestination)
        with duckdb.connect(str(destination.path), read_only=True) as reader:
            return [row for one in reader.sql(f"FROM {table}").to_arrow_table().to_batches() for row in plain_rows(one)]


class TestDuckDBDestinationInPieces(TestDuckDBDestination):
    """Copies are loaded a few rows at a time, as if they were gigabytes."""

    test_changes_lead_to_what_the_source_holds = None  # changes go as always
    test_a_batch_may_come_again = None
    test_changes_whose_answer_was_lost_are_not_taken_twice = None
    test_a_table_that_fails_says_so_and_the_others_go_on = None
    test_special_values_that_it_treated_are_counted_by_table = None
    test_by_policy_error_a_value_that_it_cannot_hold_stops_its_table_alone = None
    test_a_key_is_held_exactly_or_refused_by_name = None
    test_a_table_and_a_column_that_get_odd_names_are_followed_or_asked_for_again = None

    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: DuckDBDestination(tmp_path / "pieces.duckdb", piece_bytes=400)

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        with duckdb.connect(str(tmp_path / "pieces.duckdb")) as reader:
            assert not reader.sql("FROM duckdb_tables() WHERE starts_with(table_name, '_walrelay')").fetchall()
