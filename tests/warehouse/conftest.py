"""What tests of warehouses share: those marked `long` run with `make warehouses` only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.repetitions import ALL_KILLS
from tests.session_kit import JAVA_OPTIONS, session_with
from tests.warehouse.bigquery_kit import BigQueryPlace, bigquery_server
from tests.warehouse.snowflake_kit import SnowflakePlace, snowflake_server
from walrelay.spark.session import LOCAL_SETTINGS


@pytest.fixture(scope="module")
def warehouse_spark() -> SparkSession:
    """With the quick compiler: tables here are small."""
    return session_with({JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]})


@pytest.fixture(scope="session")
def bigquery_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bigquery_server(tmp_path_factory.mktemp("bigquery")) as address:
        yield address


@pytest.fixture(scope="session")
def snowflake_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with snowflake_server(tmp_path_factory.mktemp("snowflake")) as port:
        yield port


@pytest.fixture
def bigquery_place(bigquery_endpoint: str) -> Iterator[BigQueryPlace]:
    place = BigQueryPlace(bigquery_endpoint)
    yield place
    place.close()


@pytest.fixture
def snowflake_place(snowflake_port: int) -> Iterator[SnowflakePlace]:
    place = SnowflakePlace(snowflake_port)
    yield place
    place.close()


@pytest.fixture(params=["bigquery", "snowflake"])
def place(request: pytest.FixtureRequest) -> BigQueryPlace | SnowflakePlace:
    found: BigQueryPlace | SnowflakePlace = request.getfixturevalue(f"{request.param}_place")
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A module may say which of its tests are short, `SHORT`, by how their names begin: all others are long."""
    if ALL_KILLS:
        return
    long = [item for item in items if "tests/warehouse" in item.nodeid and not _is_short(item)]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


def _is_short(item: pytest.Item) -> bool:
    if item.get_closest_marker("long") is not None:
        return False
    short = getattr(getattr(item, "module", None), "SHORT", None)
    return short is None or item.name.startswith(short)
