"""Who is measured: each copies the whole bench table once per run, and says how long it took and how many rows came."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import duckdb
import pyarrow.parquet as pq

from benchmarks.peers import peer_command
from benchmarks.sampling import Role
from benchmarks.tables import BENCH_COLUMNS, Table
from walrelay.destinations.base import Destination
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.null import NullDestination
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.wire.copy_binary import CopyBuffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JDBC_PACKAGE = "org.postgresql:postgresql:42.7.14"
JDBC_PARTITIONS = 4
JDBC_FETCH_ROWS = 10_000
"""Without it the driver reads a whole partition into memory first."""
SPARK_ROLES = frozenset({Role.DRIVER, Role.JVM, Role.WORKER})


class UnavailableError(Exception):
    """A contender cannot take part; the text says why."""


@dataclass(frozen=True)
class Arena:
    """What the contenders share."""

    table: Table
    directory: Path
    """For what they write; each cleans up after itself."""
    psql: Path
    spark: Callable[[], SparkSession]
    """The one session of the run, started when it is first asked for."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One run of a contender."""

    seconds: float
    rows: int | None
    """None where counting would disturb: those are counted in `checked`."""


class Contender(ABC):
    """Copies the table, again and again. Only `run` is timed; what it leaves behind is removed by `clean`."""

    name: ClassVar[str]
    label: ClassVar[str]
    roles: ClassVar[frozenset[Role]]
    """Whose memory is counted."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.table = arena.table
        self.target = arena.directory / self.name

    def checked(self) -> Lap:
        """A run in which the rows are counted, whatever it costs."""
        return self.run()

    @abstractmethod
    def run(self) -> Lap: ...

    def clean(self) -> None:
        """Remove what the last run wrote, so that the disk does not write it while another is measured."""
        if self.target.is_dir():
            shutil.rmtree(self.target)
        self.target.unlink(missing_ok=True)


class PsqlCopy(Contender):
    """One stream of the same bytes that walrelay reads, thrown away: what Postgres can send."""

    name = "psql"
    label = "psql COPY binary, one stream, to nowhere"
    roles = frozenset({Role.COMMAND})
    copy_bytes = 0
    """Bytes of the stream, known after `checked`."""

    def run(self) -> Lap:
        begun = time.perf_counter()
        subprocess.run(self._command(), stdout=subprocess.DEVNULL, check=True)
        return Lap(time.perf_counter() - begun, rows=None)

    def checked(self) -> Lap:
        begun = time.perf_counter()
        rows, buffer = 0, CopyBuffer(BENCH_COLUMNS, framed=False, capacity=1 << 20)
        with self._started() as psql:
            assert psql.stdout is not None
            while count := psql.stdout.readinto(buffer.room()):  # type: ignore[attr-defined]
                self.copy_bytes += count
                buffer.received(count)
                while (found := buffer.rows()) is not None:
                    rows += len(found)
        return Lap(time.perf_counter() - begun, rows)

    def _started(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return subprocess.Popen(self._command(), stdout=subprocess.PIPE)

    def _command(self) -> list[str]:
        statement = f"COPY {self.table.name} TO STDOUT (FORMAT binary)"
        return [str(self.arena.psql), "--no-psqlrc", "--dbname", self.table.url, "--command", statement]


class WalrelayPipeline(Contender):
    """walrelay's pipeline, from looking up the publication to the last row being in place."""

    roles = SPARK_ROLES

    @abstractmethod
    def destination(self) -> Destination: ...

    def run(self) -> Lap:
        spark = self.arena.spark()
        source = PostgresSource(self.table.url, publication=self.table.publication)
        begun = time.perf_counter()
        summary = Pipeline(source, self.destination(), mode="copy", spark=spark).run()
        return Lap(time.perf_counter() - begun, summary.rows)


class WalrelayToNowhere(WalrelayPipeline):
    name = "walrelay-null"
    label = "walrelay to nowhere"

    def destination(self) -> Destination:
        return NullDestination()


class WalrelayToDuckDB(WalrelayPipeline):
    name = "walrelay-duckdb"
    label = "walrelay to DuckDB"

    def destination(self) -> Destination:
        return DuckDBDestination(self.target)

    def checked(self) -> Lap:
        lap = self.run()
        with closing(duckdb.connect(str(self.target), read_only=True)) as connection:
            found = connection.execute(f"SELECT count(*) FROM public.{self.table.name}").fetchone()
        return Lap(lap.seconds, found[0] if found else 0)


class FrameReader(Contender):
    """A reader of Spark's, thrown away by Spark's own `noop` sink."""

    @abstractmethod
    def frame(self) -> DataFrame: ...

    def run(self) -> Lap:
        self.arena.spark()
        begun = time.perf_counter()
        self.frame().write.format("noop").mode("overwrite").save()
        return Lap(time.perf_counter() - begun, rows=None)

    def checked(self) -> Lap:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        seen = Observation()
        begun = time.perf_counter()
        self.frame().observe(seen, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return Lap(time.perf_counter() - begun, int(seen.get["rows"]))


class WalrelayReader(FrameReader):
    """What a user of Spark gets: the rows as a DataFrame, so they cross into the JVM."""

    name = "walrelay-reader"
    label = 'spark.read.format("walrelay") to nowhere'
    roles = SPARK_ROLES

    def frame(self) -> DataFrame:
        from pyspark.errors import AnalysisException

        reader = self.arena.spark().read.format("walrelay")
        try:
            return reader.option("url", self.table.url).option("table", f"public.{self.table.name}").load()
        except AnalysisException as error:
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise UnavailableError('Spark finds no format "walrelay": this version has no reader') from error


class JdbcReader(FrameReader):
    name = "jdbc-null"
    label = "Spark JDBC reader, 4 partitions, to nowhere"
    # The rows never leave the JVM; this process only waits.
    roles = frozenset({Role.JVM})

    def frame(self) -> DataFrame:
        return self.arena.spark().read.format("jdbc").options(**self.options()).load()

    def options(self) -> dict[str, str]:
        address = self.table.url.removeprefix("postgresql://postgres@")
        return {
            "url": f"jdbc:postgresql://{address}",
            "driver": "org.postgresql.Driver",
            "user": "postgres",
            "dbtable": self.table.name,
            "partitionColumn": "id",
            "lowerBound": "1",
            "upperBound": str(self.table.rows + 1),
            "numPartitions": str(JDBC_PARTITIONS),
            "fetchsize": str(JDBC_FETCH_ROWS),
        }


class JdbcToParquet(JdbcReader):
    name = "jdbc-parquet"
    label = "Spark JDBC reader, 4 partitions, to Parquet"

    def run(self) -> Lap:
        self.arena.spark()
        begun = time.perf_counter()
        self.frame().write.parquet(str(self.target))
        seconds = time.perf_counter() - begun
        return Lap(seconds, sum(pq.read_metadata(file).num_rows for file in self.target.glob("*.parquet")))

    def checked(self) -> Lap:
        return self.run()


class DuckDBExtension(Contender):
    """The peer: C++ in one process, with connections of its own, straight into DuckDB's storage."""

    name = "duckdb-extension"
    label = "DuckDB's Postgres extension to DuckDB"
    roles = frozenset({Role.COMMAND})

    def run(self) -> Lap:
        command = peer_command(self.table.url, self.table.name, str(self.target))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"the peer failed: {done.stderr.strip()[-500:]}")
        said = json.loads(done.stdout)
        return Lap(said["seconds"], said["rows"])


CONTENDERS: tuple[type[Contender], ...] = (
    PsqlCopy, WalrelayToNowhere, WalrelayToDuckDB, WalrelayReader, JdbcReader, JdbcToParquet, DuckDBExtension,
)  # fmt: skip
"""In the order in which they first run: walrelay before JDBC, whose garbage stays in the shared JVM."""
