"""Snowflake's destination keeps the contract of destinations, on fakesnow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.snowflake_kit import SnowflakePlace, snowflake_server
from walrelay.destinations.base import Destination
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with snowflake_server(tmp_path_factory.mktemp("snowflake")) as port:
        yield port


class TestSnowflakeDestination(DestinationContract):
    @pytest.fixture
    def spark(self, warehouse_spark: SparkSession) -> SparkSession:
        return warehouse_spark

    @pytest.fixture
    def destination_factory(self, port: int, tmp_path: Path) -> Iterator[DestinationFactory]:
        self._place = SnowflakePlace(port)
        yield self._place.destination
        self._place.close()

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._place.rows(table)
