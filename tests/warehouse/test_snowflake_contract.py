"""Snowflake's destination keeps the contract of destinations, on an emulator."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.snowflake_kit import SnowflakePlace
from walrelay.destinations.base import Destination
from walrelay.testing.destination_contract import ContractSource, DestinationContract, DestinationFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SHORT = (
    "test_changes_lead_to_what_the_source_holds[values that are not sent again-in one batch]",
    "test_changes_lead_to_what_the_source_holds[equal rows without a key-in one batch]",
)
"""A statement on the emulator takes half a second, and more when it is busy: the others are for `make warehouses`."""


class TestSnowflakeDestination(DestinationContract):
    @pytest.fixture(autouse=True)
    def place(self, snowflake_place: SnowflakePlace) -> None:
        self._place = snowflake_place

    @pytest.fixture
    def spark(self, warehouse_spark: SparkSession) -> SparkSession:
        return warehouse_spark

    @pytest.fixture
    def destination_factory(self, snowflake_place: SnowflakePlace) -> DestinationFactory:
        return snowflake_place.destination

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._place.rows(table)

    def _copied(self, source: ContractSource, destination: Destination, table: str) -> bool:
        """DuckDB, on which the emulator stands, takes Twin and twin for one table; the service does not."""
        return table != 'public."Twin"' and super()._copied(source, destination, table)
