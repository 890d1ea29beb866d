"""BigQuery's destination keeps the contract of destinations, on an emulator."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.bigquery_kit import BigQueryPlace
from walrelay.destinations.base import Destination
from walrelay.errors import NameClashError
from walrelay.testing.contract.fixtures import SourceFactory
from walrelay.testing.contract.stories import ODD_RENAMED
from walrelay.testing.destination_contract import ContractSource, DestinationContract, DestinationFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SHORT = ("test_changes_lead_to_what_the_source_holds[keys that move-in one batch]",)
"""A statement on the emulator takes half a second, and more when it is busy: the others are for `make warehouses`."""


class TestBigQueryDestination(DestinationContract):
    @pytest.fixture(autouse=True)
    def place(self, bigquery_place: BigQueryPlace) -> None:
        self._place = bigquery_place

    @pytest.fixture
    def spark(self, warehouse_spark: SparkSession) -> SparkSession:
        return warehouse_spark

    @pytest.fixture
    def destination_factory(self, bigquery_place: BigQueryPlace) -> DestinationFactory:
        return bigquery_place.destination

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._place.rows(table)

    def _copied(self, source: ContractSource, destination: Destination, table: str) -> bool:
        """DuckDB, on which the emulator stands, takes Twin and twin for one table; the service does not."""
        return table != 'public."Twin"' and super()._copied(source, destination, table)

    def test_a_table_and_a_column_that_get_odd_names_are_followed_or_asked_for_again(
        self, source_of: SourceFactory, destination: Destination
    ) -> None:
        """The suite's new name is none that BigQuery has: it is refused by name, and another one is followed."""
        tables = "CREATE TABLE plain (id int PRIMARY KEY, note text); CREATE PUBLICATION contract FOR TABLE plain"
        source = source_of(tables, ("plain",))
        source.do("INSERT INTO plain VALUES (1, 'a'), (2, 'b')")
        source.copy(destination, "plain")
        before = source.batch().to
        source.do(f"ALTER TABLE plain RENAME TO {ODD_RENAMED.removeprefix('public.')}")
        source.do(f"UPDATE {ODD_RENAMED} SET note = 'c' WHERE id = 1")
        with pytest.raises(NameClashError) as caught:
            destination.write_events(source.batch(before))
        assert ODD_RENAMED in caught.value.message and len(self._place.rows("plain")) == 2
        source.do(f'ALTER TABLE {ODD_RENAMED} RENAME TO "Größe 2"', 'ALTER TABLE "Größe 2" RENAME note TO "x, y"')
        source.do("""UPDATE "Größe 2" SET "x, y" = 'd' WHERE id = 2""")
        destination.write_events(source.batch(before))
        assert sorted((row["id"], row["x, y"]) for row in self._place.rows('"Größe 2"')) == [(1, "c"), (2, "d")]
