"""ClickHouse keeps the contract of destinations, by the quick lane and by Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.session_kit import session_with
from tests.warehouse.clickhouse_kit import ClickHouse, running
from walrelay.destinations.base import Destination
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import SPARK, ClickHouseDestination
from walrelay.spark.needs import settings_for
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with running(tmp_path_factory.mktemp("clickhouse") / "server") as server:
        yield server


@pytest.fixture
def place(clickhouse: ClickHouse) -> Iterator[str]:
    name = clickhouse.create_database()
    yield name
    clickhouse.drop_database(name)


class TestClickHouseDestination(DestinationContract):
    """Few changes, as they come every second: collapsed by Arrow where that is enough."""

    limits = Limits()

    @pytest.fixture
    def destination_factory(self, clickhouse: ClickHouse, place: str) -> DestinationFactory:
        self._clickhouse, self._place = clickhouse, place
        return lambda: ClickHouseDestination(clickhouse.url(place), limits=self.limits)

    @pytest.fixture(scope="class")
    @classmethod
    def clickhouse_spark(cls) -> SparkSession:
        return session_with(settings_for(SPARK, {}))

    @pytest.fixture
    def spark(self, clickhouse_spark: SparkSession) -> SparkSession:
        return clickhouse_spark

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._clickhouse.rows(self._place, table)


@pytest.mark.spark
@pytest.mark.long
class TestClickHouseDestinationThroughSpark(TestClickHouseDestination):
    """Many changes: collapsed by Spark; and too many for one block, so that they are attached."""

    limits = Limits(quick_rows=0, block_bytes=0)
