"""A secret in the URL of a log goes to the processes that need it only: Spark prints options, and `ps` arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.test_log_on_s3 import KEY, SECRET, S3Server
from tests.spark.live_kit import Live
from walrelay.changes.batch import EventBatch
from walrelay.destinations.base import WriteResult
from walrelay.destinations.memory import MemoryDestination
from walrelay.spark.secret_log import log_address

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        environment.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
        running = S3Server(tmp_path_factory.mktemp("s3"))
        yield running
        running.stop()


class Looking(MemoryDestination):
    """Reads each batch through Spark too, and notes where the secret could be seen meanwhile."""

    def __init__(self, spark: SparkSession, but: int) -> None:
        super().__init__()
        self._spark = spark
        self._but = but
        self.rows_by_spark = 0
        self.seen_in: set[str] = set()
        self.looked_at: set[str] = set()

    def write_events(self, batch: EventBatch) -> WriteResult:
        frame = batch.dataframe()
        self.rows_by_spark += frame.count()
        self._look("a read's plan", frame._jdf.queryExecution().toString())
        for leaf in _leaves(frame._jdf.queryExecution().analyzed()):
            self._look("a read's options", leaf.options().asCaseSensitiveMap().toString())
        queries = self._spark._jsparkSession.sharedState().activeStreamingQueries().values()
        for query in queries:
            self._look("the stream's plan", query.logicalPlan().toString())
            for leaf in _leaves(query.analyzedPlan()):
                self._look("the stream's options", leaf.extraOptions().asCaseSensitiveMap().toString())
        self._look("Spark's settings", str(self._spark.sparkContext.getConf().getAll()))
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            if int(process.parent.name) not in (self._but, os.getpid()):
                self._look("the process list", _text(process))
        return super().write_events(batch)

    def _look(self, where: str, text: str) -> None:
        self.looked_at.add(where)
        if SECRET in text:
            self.seen_in.add(where)


def _leaves(plan: Any) -> list[Any]:
    found = plan.collectLeaves()
    return [found.apply(place) for place in range(found.size())]


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return ""  # it has ended


def test_a_secret_in_the_url_of_a_log_is_seen_nowhere(
    live: Live, spark: SparkSession, server: S3Server, tmp_path: Path
) -> None:
    live.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    destination = Looking(spark, but=server._process.pid)
    url = server.url(prefix="secret").replace("s3://", f"s3://{KEY}:{SECRET}@")
    live.log = url  # type: ignore[assignment]
    live.pipeline(destination, mode="changes").run(until="caught-up")
    live.sql("INSERT INTO t VALUES (1), (2)")
    live.pipeline(destination, mode="changes").run(until="caught-up")
    assert len(destination.changes) == 2 and destination.rows_by_spark >= 2
    log = log_address(spark, url)
    stream = spark.readStream.format(log.format).option("log", log.location).load()
    destination._look("a stream's plan", stream._jdf.queryExecution().toString())
    for leaf in _leaves(stream._jdf.queryExecution().logical()):
        destination._look("a stream's options", leaf.toString())
    assert destination.looked_at >= {"a read's options", "a stream's options", "the process list"}
    assert destination.seen_in == set()
    assert not any(SECRET in notice for notice in live.heard.notices)
    for file in [*server.root.joinpath("bucket", "secret").rglob("*"), *tmp_path.rglob("*")]:
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_a_secret_that_a_user_gives_as_an_option_is_refused(spark: SparkSession) -> None:
    frame = spark.read.format("walrelay").option("log", f"s3://{KEY}:{SECRET}@bucket/log?region=none")
    with pytest.raises(Exception, match="AWS_SECRET_ACCESS_KEY") as caught:
        frame.load()
    assert SECRET not in str(caught.value)
