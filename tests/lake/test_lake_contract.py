"""The lakes keep the contract of destinations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from walrelay.destinations.base import Destination
from walrelay.destinations.delta.destination import DeltaDestination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.iceberg.destination import IcebergDestination
from walrelay.testing.destination_contract import DestinationContract, DestinationFactory


class TestDeltaDestination(DestinationContract):
    @pytest.fixture
    def spark(self, lake_spark: SparkSession) -> SparkSession:
        self._spark = lake_spark
        return lake_spark

    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: DeltaDestination(tmp_path / "lake")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        assert isinstance(destination, DeltaDestination)
        place = destination.path.joinpath(*table.split("."))
        return [row.asDict(recursive=True) for row in self._spark.sql(f"SELECT * FROM delta.`{place}`").collect()]


class TestIcebergDestination(DestinationContract):
    @pytest.fixture
    def spark(self, lake_spark: SparkSession) -> SparkSession:
        self._spark = lake_spark
        return lake_spark

    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: IcebergDestination(tmp_path / "lake")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        assert isinstance(destination, IcebergDestination)
        session = self._spark.newSession()
        for name, value in destination.capabilities.spark.settings.items():
            session.conf.set(name, value)
        return [row.asDict(recursive=True) for row in session.sql(f"SELECT * FROM walrelay.{table}").collect()]


class TestDuckDBDestinationThroughSpark(DestinationContract):
    @pytest.fixture
    def spark(self, lake_spark: SparkSession) -> SparkSession:
        return lake_spark

    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: DuckDBDestination(tmp_path / "frames.duckdb", lane="frames")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        with duckdb.connect(str(self._path(destination)), read_only=True) as reader:
            found: list[dict[str, Any]] = reader.sql(f"FROM {table}").to_arrow_table().to_pylist()
            return found

    @staticmethod
    def _path(destination: Destination) -> Path:
        assert isinstance(destination, DuckDBDestination)
        return destination.path
