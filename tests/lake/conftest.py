"""One Spark session with what the lakes need, for all tests that write to one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lake.lake_kit import DeltaLake, IcebergLake, Lake, Opened
from tests.repetitions import ALL_KILLS
from tests.session_kit import JAVA_OPTIONS, session_with
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.destinations.delta.needs import NEEDS as DELTA
from walrelay.destinations.iceberg.needs import needs_of
from walrelay.errors import SparkStartError
from walrelay.spark.needs import settings_for
from walrelay.spark.session import LOCAL_SETTINGS
from walrelay.testing.destination_contract import ContractSource

IN_SHORT = {"keys that move", "values that are not sent again"}
"""Of the contract's stories: a statement on a lake takes a second, so that the others are for `make lakes`; some are
also in the pipelines that run into lakes."""
IN_LONG = (
    "test_no_rows_still_make_a_table",
    "test_tables_are_copied_side_by_side",
    "test_a_table_is_copied_while_others_take_changes",
    "test_before_a_copy_it_forgets_how_far_the_table_was",
    "test_it_knows_how_far_each_table_is",
    "test_a_copy_whose_answer_was_lost",
    "test_changes_whose_answer_was_lost",
    "test_by_policy_error",
    "test_a_key_is_held_exactly_or_refused_by_name[by_length]",
    "test_a_table_and_a_column_that_get_odd_names",
    "test_odd_names_are_kept",
    "test_special_values",
    "test_what_goes_wrong_is_told_and_stops_nothing",
    "test_the_position_outlives_the_snapshots",
    "test_a_merge_is_given_up_when_the_pipeline_stops_and_comes_again",
    "test_few_files_are_made_of_many_and_neither_rows_nor_positions_change[delta]",
    "test_deletion_vectors_mark_rows",
    "test_rows_are_clustered_by_the_key",
)
THROUGH_SPARK = ("test_changes_lead_to", "test_an_altered_table", "test_special_values_that_it_treated")
"""What the frame lane changes for DuckDB; the rest of it is in tests/contract."""


ICEBERG = needs_of({"uri": "jdbc:sqlite:", "type": "jdbc"})
NEEDS = SparkNeeds(DELTA.packages + ICEBERG.packages, DELTA.extensions + ICEBERG.extensions, DELTA.settings)
"""Of both formats; each Iceberg lake says itself where its catalog is."""


@pytest.fixture(scope="module")
def lake_spark() -> SparkSession:
    """With the quick compiler: tables here are small, and what the slow one would save is never earned."""
    try:
        return session_with(settings_for(NEEDS, {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}))
    except SparkStartError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(
            f"the packages of the lakes ({', '.join(NEEDS.packages)}) could not be had from Maven: {error.hint}"
        )


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, lake_spark: SparkSession) -> Lake:
    return (DeltaLake if request.param == "delta" else IcebergLake)(tmp_path / "lake")


@pytest.fixture
def source(database: str, tmp_path: Path) -> Iterator[ContractSource]:
    source = ContractSource(database, tmp_path)
    yield source
    source.close()


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def opened(lake_spark: SparkSession, heard: list[str]) -> Opened:
    @contextmanager
    def opened(destination: Destination) -> Iterator[Destination]:
        destination.startup(
            DestinationContext("contract", copy_settings(), spark=lambda: lake_spark, notify=heard.append)
        )
        try:
            yield destination
        finally:
            destination.shutdown()

    return opened


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL_KILLS:
        return
    chosen = [item for item in items if _is_short(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _is_short(item: pytest.Item) -> bool:
    if "tests/lake" not in item.nodeid:
        return True
    if "ThroughSpark" in item.nodeid and not item.name.startswith(THROUGH_SPARK):
        return False
    if "TestDelta" in item.nodeid and item.name.startswith("test_a_table_that_fails"):
        return False  # Iceberg's does the same in half the time
    if "test_lake_crashes" in item.nodeid or "test_lake_cluster" in item.nodeid:
        return False  # each kill is a JVM that starts, merges and dies; a cluster has four of them
    given = getattr(item, "callspec", None)
    story, cut = (None, None) if given is None else (given.params.get("story"), given.params.get("cut"))
    if story is None:
        return not item.name.startswith(IN_LONG)
    return story in IN_SHORT and cut == "in one batch" if cut is not None else story == "keys that change places"
