"""What tests of warehouses share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

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
