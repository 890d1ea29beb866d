"""ClickHouse keeps the contract of destinations, by the quick lane and by Spark's."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, clickhouse_spark, place
from walrelay.destinations.base import Destination
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory

__all__ = ["clickhouse", "clickhouse_spark", "place"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
IN_LONG = (
    "test_tables_are_copied_side_by_side",
    "test_no_rows_still_make_a_table",
    "test_before_a_copy_it_forgets",
    "test_a_batch_may_come_again",
    "test_what_was_durable",
    "test_a_copy_whose_answer_was_lost",
    "test_by_policy_error",
    "test_special_values_that_it_treated",
    "test_a_table_and_a_column_that_get_odd_names",
    "test_a_key_is_held_exactly_or_refused_by_name[by_day]",
    *(f"test_changes_lead_to_what_the_source_holds[{story}-commit by commit]" for story in (
        "inserts", "updates and deletes", "keys that move", "truncates", "equal rows without a key",
        "rows that are named by another index than the primary key", "keys that change places",
        "several tables in a transaction", "values that are not sent again",
    )),
    *(f"test_changes_lead_to_what_the_source_holds[{story}-in one batch]" for story in (
        "inserts", "updates and deletes", "rows that are named by another index than the primary key",
        "several tables in a transaction",
    )),
)  # fmt: skip


class TestClickHouseDestination(DestinationContract):
    """Few changes, as they come every second: collapsed by Arrow where that is enough."""

    limits = Limits()

    @pytest.fixture
    def destination_factory(self, clickhouse: ClickHouse, place: str) -> DestinationFactory:
        self._clickhouse, self._place = clickhouse, place
        return lambda: ClickHouseDestination(clickhouse.url(place), limits=self.limits)

    @pytest.fixture
    def spark(self, clickhouse_spark: SparkSession) -> SparkSession:
        return clickhouse_spark

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        return self._clickhouse.rows(self._place, table)


@pytest.mark.long
class TestClickHouseDestinationThroughSpark(TestClickHouseDestination):
    """Many changes: collapsed by Spark; and too many for one block, so that they are attached."""

    limits = Limits(quick_rows=0, block_bytes=0)
