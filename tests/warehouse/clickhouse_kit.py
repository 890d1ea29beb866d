"""A ClickHouse for tests: the real engine, chdb, behind a front of ours that speaks its HTTP interface."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import clickhouse_connect
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.emulator_kit import emulator_python
from tests.lake.lake_kit import Notices
from tests.session_kit import JAVA_OPTIONS, session_with
from walrelay import Pipeline, PostgresSource, SqliteStore
from walrelay.config.settings import CopySettings
from walrelay.destinations.base import Destination
from walrelay.destinations.clickhouse.destination import SPARK
from walrelay.destinations.clickhouse.dialect import quoted
from walrelay.destinations.clickhouse.names import view_name
from walrelay.model.names import TableName
from walrelay.spark.needs import settings_for
from walrelay.spark.session import LOCAL_SETTINGS
from walrelay.testing import clickhouse_front

USER, PASSWORD = "relay", "s3cret:%/@ word"
"""Needs to be quoted in a URL."""
QUOTED = "s3cret%3A%25%2F%40%20word"


@dataclass
class ClickHouse:
    """A server; what is in `directory` stays when it ends."""

    directory: Path
    port: int = 0
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        program = [str(emulator_python("clickhouse")), clickhouse_front.__file__, str(self.directory)]
        options = ["--port", str(self.port), "--user", USER, "--password", PASSWORD]
        with (self.directory.parent / f"{self.directory.name}.out").open("a") as told:
            self._process = subprocess.Popen(
                [*program, *options], stdout=subprocess.PIPE, stderr=told, text=True, stdin=subprocess.DEVNULL
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        assert said[:1] == ["ready"], f"the front did not start: see {self.directory}.out"
        self.port = int(said[1])

    def stop(self) -> None:
        """At once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def url(self, database: str, **options: str) -> str:
        rest = "&".join(f"{name}={value}" for name, value in options.items())
        return f"clickhouse://{USER}:{QUOTED}@127.0.0.1:{self.port}/{database}" + (f"?{rest}" if rest else "")

    def client(self) -> Any:
        """A reader that has nothing of ours."""
        return clickhouse_connect.get_client(
            host="127.0.0.1", port=self.port, username=USER, password=PASSWORD, autogenerate_session_id=False
        )

    def create_database(self) -> str:
        name = f"test_{uuid4().hex[:12]}"
        client = self.client()
        client.command(f"CREATE DATABASE {name}")
        client.close()
        return name

    def drop_database(self, name: str) -> None:
        client = self.client()
        client.command(f"DROP DATABASE {name} SYNC")
        client.close()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        client = self.client()
        try:
            return [tuple(row) for row in client.query(question).result_rows]
        finally:
            client.close()

    def arrow(self, database: str, table: str, *, use_strings: bool = True) -> pa.Table:
        """What a reader finds under a name that is written as Postgres writes it."""
        place = f"{quoted(database)}.{quoted(view_name(TableName.parse(table)))}"
        client = self.client()
        try:
            return client.query_arrow(f"SELECT * FROM {place}", use_strings=use_strings)
        finally:
            client.close()

    def rows(self, database: str, table: str) -> list[dict[str, Any]]:
        return self.arrow(database, table).to_pylist()


@contextmanager
def running(directory: Path) -> Iterator[ClickHouse]:
    directory.mkdir(parents=True, exist_ok=True)
    server = ClickHouse(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with running(tmp_path_factory.mktemp("clickhouse") / "server") as server:
        yield server


@pytest.fixture
def place(clickhouse: ClickHouse) -> Iterator[str]:
    """A fresh database."""
    name = clickhouse.create_database()
    yield name
    clickhouse.drop_database(name)


@pytest.fixture(scope="module")
def clickhouse_spark() -> SparkSession:
    """With the quick compiler: tables here are small."""
    return session_with(settings_for(SPARK, {JAVA_OPTIONS: LOCAL_SETTINGS[JAVA_OPTIONS]}))


def pipeline_into(
    destination: Destination,
    directory: Path,
    url: str,
    slot: str,
    spark: SparkSession,
    settings: CopySettings | None = None,
    listener: Notices | None = None,
    id_: str = "walrelay",
) -> tuple[Pipeline, SqliteStore]:
    """The pipeline whose state and log are in the directory."""
    store = SqliteStore(directory / "state.sqlite", id_)
    made = Pipeline(
        PostgresSource(url, publication="p"),
        destination,
        store,
        mode="both",
        spark=spark,
        settings=settings,
        listener=listener or Notices(),
        id=id_,
        log=directory / "log",
        slot=slot,
    )
    return made, store


def catch_up(
    destination: Destination,
    directory: Path,
    url: str,
    slot: str,
    spark: SparkSession,
    settings: CopySettings | None = None,
    id_: str = "walrelay",
) -> Notices:
    """Runs it until it has caught up; what it said."""
    notices = Notices()
    pipeline, store = pipeline_into(destination, directory, url, slot, spark, settings, notices, id_)
    try:
        notices.treated = dict(pipeline.run("caught-up").treated)
    finally:
        store.close()
    return notices
