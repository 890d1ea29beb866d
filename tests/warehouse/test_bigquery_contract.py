"""BigQuery's destination keeps the contract of destinations, on local-bigquery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.bigquery_kit import BigQueryPlace, bigquery_server
from walrelay.destinations.base import Destination
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bigquery_server(tmp_path_factory.mktemp("bigquery")) as address:
        yield address


class TestBigQueryDestination(DestinationContract):
    @pytest.fixture
    def spark(self, warehouse_spark: SparkSession) -> SparkSession:
        return warehouse_spark

    @pytest.fixture
    def destination_factory(self, endpoint: str, tmp_path: Path) -> Iterator[DestinationFactory]:
        self._place = BigQueryPlace(endpoint)
        yield self._place.destination
        self._place.close()

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._place.rows(table)
