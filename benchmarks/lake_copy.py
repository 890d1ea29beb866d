"""Who copies a table into a lake: walrelay, and Spark's JDBC reader with the format's own writer."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from time import perf_counter

import pyarrow.parquet as pq

from benchmarks.contenders import SPARK_ROLES, Contender, JdbcReader, Lap, WalrelayPipeline
from benchmarks.copy_speed import Goal
from benchmarks.lake_spark import ICEBERG_NAME, iceberg_session
from walrelay import DeltaDestination, IcebergDestination
from walrelay.changes.rows import TableRows
from walrelay.destinations.base import Destination, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.model.schema import TableSchema


class ParquetAlone(SimpleDestination):
    """Takes the landed files, and does nothing with them."""

    name = "parquet"
    capabilities = Capabilities(keeps_files=True)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        return WriteResult(durable=True, rows=sum(pq.read_metadata(file.path).num_rows for file in rows.files))


class WalrelayToParquet(WalrelayPipeline):
    name = "walrelay-parquet"
    label = "walrelay to Parquet alone"

    def destination(self) -> Destination:
        return ParquetAlone()


class WalrelayToDelta(WalrelayPipeline):
    name = "walrelay-delta"
    label = "walrelay to Delta"

    def destination(self) -> Destination:
        return DeltaDestination(self.target)


class WalrelayToIceberg(WalrelayPipeline):
    name = "walrelay-iceberg"
    label = "walrelay to Iceberg"

    def destination(self) -> Destination:
        return IcebergDestination(self.target)


class JdbcToLake(JdbcReader):
    """What people write by hand."""

    roles = SPARK_ROLES

    def checked(self) -> Lap:
        return Lap(self.run().seconds, self.count())

    def run(self) -> Lap:
        self.target.mkdir()
        self.prepare()
        begun = perf_counter()
        self.write()
        return Lap(perf_counter() - begun, rows=None)

    def prepare(self) -> None:
        """What has nothing to do with the copy."""

    @abstractmethod
    def write(self) -> None: ...

    @abstractmethod
    def count(self) -> int: ...


class JdbcToDelta(JdbcToLake):
    name = "jdbc-delta"
    label = "Spark JDBC reader, 4 partitions, to Delta"

    def write(self) -> None:
        self.frame().write.format("delta").save(str(self.target / "table"))

    def count(self) -> int:
        return self.arena.spark().read.format("delta").load(str(self.target / "table")).count()


class JdbcToIceberg(JdbcToLake):
    name = "jdbc-iceberg"
    label = "Spark JDBC reader, 4 partitions, to Iceberg"

    def prepare(self) -> None:
        self._session = iceberg_session(self.arena.spark(), self.target)

    def write(self) -> None:
        reader = self._session.read.format("jdbc").options(**self.options())
        reader.load().writeTo(ICEBERG_NAME).tableProperty("format-version", "3").create()

    def count(self) -> int:
        return self._session.table(ICEBERG_NAME).count()

    def clean(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)


LAKE_CONTENDERS: tuple[type[Contender], ...] = (
    WalrelayToParquet, WalrelayToDelta, WalrelayToIceberg, JdbcToDelta, JdbcToIceberg,
)  # fmt: skip
LAKE_GOALS = tuple(
    Goal(f"walrelay-{name}", theirs, target)
    for name in ("delta", "iceberg")
    for theirs, target in ((f"jdbc-{name}", 2.0), ("walrelay-parquet", 0.8))
)
