"""BigQuery's destination keeps the contract of destinations, on an emulator."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.bigquery_kit import BigQueryPlace
from walrelay.destinations.base import Destination
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
