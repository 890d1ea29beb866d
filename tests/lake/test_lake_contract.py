"""The lakes keep the contract of destinations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from walrelay.changes.spark_dialect import DIALECT
from walrelay.decode.plain_rows import plain_rows
from walrelay.destinations.base import Destination
from walrelay.destinations.delta.destination import DeltaDestination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.iceberg.destination import IcebergDestination
from walrelay.destinations.lake.names import directory_name
from walrelay.model.names import TableName
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
        name = TableName.parse(table)
        place = DIALECT.quoted(str(destination.path / directory_name(name.schema) / directory_name(name.name)))
        return [row.asDict(recursive=True) for row in self._spark.sql(f"SELECT * FROM delta.{place}").collect()]


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
        name = TableName.parse(table)
        parts = directory_name(name.schema).replace(".", "~2E"), directory_name(name.name)
        place = ".".join(DIALECT.quoted(part) for part in ("walrelay", *parts))
        return [row.asDict(recursive=True) for row in session.sql(f"SELECT * FROM {place}").collect()]


class TestDuckDBDestinationThroughSpark(DestinationContract):
    @pytest.fixture
    def spark(self, lake_spark: SparkSession) -> SparkSession:
        return lake_spark

    @pytest.fixture
    def destination_factory(self, tmp_path: Path) -> DestinationFactory:
        return lambda: DuckDBDestination(tmp_path / "frames.duckdb", lane="frames")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        with duckdb.connect(str(self._path(destination)), read_only=True) as reader:
            return [row for one in reader.sql(f"FROM {table}").to_arrow_table().to_batches() for row in plain_rows(one)]

    @staticmethod
    def _path(destination: Destination) -> Path:
        assert isinstance(destination, DuckDBDestination)
        return destination.path
