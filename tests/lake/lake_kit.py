"""Lakes as tests see them: written by a pipeline, read by programs that are not ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from walrelay import DeltaDestination, IcebergDestination, Pipeline, PostgresSource, SqliteStore
from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.model.names import TableName
from walrelay.model.special import Special
from walrelay.workers.report import Silent


class Notices(Silent):
    """What a run said, and which tables it copied."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.copied: list[str] = []
        self.treated: dict[Special, int] = {}

    def table_started(self, table: TableName, attempt: int) -> None:
        self.copied.append(table.name)

    def notice(self, message: str) -> None:
        self.heard.append(message)


class DeltaLake:
    """Read by delta-rs."""

    name = "delta"
    reader = "delta-rs"

    def __init__(self, path: Path) -> None:
        self.path = path

    def destination(self, **options: Any) -> Destination:
        return DeltaDestination(self.path, **options)

    def arrow(self, name: str) -> pa.Table:
        table = deltalake.DeltaTable(str(self.path / "public" / name))
        return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())

    def held(self, name: str) -> list[dict[str, Any]]:
        return self.arrow(name).to_pylist()

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.sql(f"SELECT * FROM delta.`{self.path / 'public' / name}`")

    @staticmethod
    def type_named(type_: str) -> str:
        """What a type of Spark's is called here."""
        return type_

    def files(self, name: str) -> set[str]:
        """Those that a reader opens."""
        return set(deltalake.DeltaTable(str(self.path / "public" / name)).file_uris())

    def names(self) -> set[str]:
        return {one.parent.name for one in self.path.glob("public/*/_delta_log")}

    def widened(self, spark: SparkSession, name: str, columns: str) -> list[tuple[Any, ...]]:
        """delta-rs does not read such a table yet, but Spark does."""
        found = spark.sql(f"SELECT {columns} FROM delta.`{self.path / 'public' / name}`")
        return [tuple(row) for row in found.collect()]


class IcebergLake:
    """Read by pyiceberg."""

    name = "iceberg"
    reader = "pyiceberg"

    def __init__(self, path: Path) -> None:
        self.path = path

    def destination(self, **options: Any) -> Destination:
        return IcebergDestination(self.path, **options)

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("walrelay", uri=f"sqlite:///{self.path / 'catalog.db'}", warehouse=self.path.as_uri())

    def table(self, name: str) -> Table:
        return self.catalog.load_table(("public", name))

    def files(self, name: str) -> set[str]:
        """Those that a reader opens."""
        tasks = list(self.table(name).scan().plan_files())
        return {file.file_path for task in tasks for file in (task.file, *task.delete_files)}

    def arrow(self, name: str) -> pa.Table:
        return self.table(name).scan().to_arrow()

    def held(self, name: str) -> list[dict[str, Any]]:
        rows = self.arrow(name).to_pylist()
        assert isinstance(rows, list)
        return rows

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        return session_of(self, spark).sql(f"SELECT * FROM walrelay.public.`{name}`")

    @staticmethod
    def type_named(type_: str) -> str:
        """It has no integer that is shorter than an int."""
        return type_.replace("smallint", "int")

    def names(self) -> set[str]:
        return {name for _, name in self.catalog.list_tables("public")}

    def widened(self, spark: SparkSession, name: str, columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns.split(", ")) for row in self.held(name)]


Lake = DeltaLake | IcebergLake
Opened = Callable[[Destination], AbstractContextManager[Destination]]


def session_of(lake: IcebergLake, spark: SparkSession) -> SparkSession:
    """One that is not ours, as somebody has who looks after the tables himself."""
    session = spark.newSession()
    for name, value in lake.destination().capabilities.spark.settings.items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def catch_up(
    directory: Path,
    url: str,
    slot: str,
    lake: Lake,
    spark: SparkSession,
    id_: str = "walrelay",
    settings: CopySettings | None = None,
) -> Notices:
    """Runs the pipeline whose state and log are in the directory until it has caught up; what it said."""
    store, notices = SqliteStore(directory / "state.sqlite", id_), Notices()
    pipeline = Pipeline(
        PostgresSource(url, publication="p"),
        lake.destination(),
        store,
        mode="both",
        spark=spark,
        settings=settings,
        listener=notices,
        id=id_,
        log=directory / "log",
        slot=slot,
    )
    try:
        notices.treated = dict(pipeline.run("caught-up").treated)
    finally:
        store.close()
    return notices
