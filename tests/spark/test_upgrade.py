"""What an earlier release wrote is taken over: its state, its log with a rest in it, and its destination.

tests/release_kit.py says how a server comes to fit; tests/fixtures/make_release.py, how the release's files were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.release_kit import OWNER, RELEASES, Release, owner_url, release, run, server_of
from tests.spark.live_kit import Heard
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.control.agreement import compare
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.log.reader import LogReader
from walrelay.model.phases import phase_name
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(600)]
LATER = "INSERT INTO orders (id, customer) VALUES (401, 3);\nUPDATE customers SET remark = 'later' WHERE id = 51;\n"


@pytest.fixture(scope="module", params=sorted(one.name for one in RELEASES.iterdir() if one.is_dir()))
def kept(request: pytest.FixtureRequest) -> Release:
    return release(request.param)


@pytest.fixture
def server(kept: Release) -> Iterator[EmbeddedPostgres]:
    with server_of(kept) as running:
        yield running


class Taken:
    """What the release wrote, in a directory, for pipelines of this version."""

    def __init__(self, kept: Release, server: EmbeddedPostgres, directory: Path, spark: SparkSession) -> None:
        kept.unpack(directory)
        self.file = directory / "out.duckdb"
        self.log = directory / "walrelay-state" / "log"
        self.source = PostgresSource(owner_url(server), publication="shop")
        self.heard = Heard()
        self._state = directory / "walrelay-state" / "state.sqlite"
        self._spark = spark

    def rows(self, question: str) -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.file), read_only=True) as connection:
            return connection.execute(question).fetchall()

    def phases(self) -> dict[str, str]:
        store = SqliteStore(self._state, "shop")
        found = {str(table): phase_name(phase) for table, phase in store.get_table_replication_states().items()}
        store.close()
        return found

    def run(self) -> None:
        self.heard = Heard()
        store = SqliteStore(self._state, "shop")
        Pipeline(
            self.source, DuckDBDestination(self.file), store, mode="both", id="shop", log=self.log, spark=self._spark,
            listener=self.heard, settings=copy_settings(retry_delay=0.05),
            capture=capture_settings(segment_age=0.02, retry_delay=0.05),
        ).run(until="caught-up")  # fmt: skip
        store.close()


def test_a_pipeline_of_an_earlier_release_goes_on(
    kept: Release, server: EmbeddedPostgres, tmp_path: Path, spark: SparkSession
) -> None:
    taken = Taken(kept, server, tmp_path, spark)
    assert LogReader(taken.log).head() == kept.head
    assert sorted(taken.phases().values()) == ["errored", "ready", "ready", "ready"]
    assert taken.rows("SELECT count(*), max(id) FROM public.orders") == [(210, 220)], "the rest is in the log alone"
    run(server, f"GRANT SELECT ON secrets TO {OWNER};\n")

    taken.run()

    assert taken.heard.started == ["public.secrets"], "no table is copied again but the one that never was"
    assert taken.rows("SELECT detail::VARCHAR FROM public.orders WHERE id = 100") == [('{"late": true}',)]
    assert taken.rows("SELECT remark FROM public.customers WHERE id = 51") == [("came late",)]
    assert all(one.agrees for one in compare(taken.source, taken.file))
    assert set(taken.phases().values()) == {"ready"}

    run(server, LATER)
    taken.run()

    assert taken.heard.started == []
    assert all(one.agrees for one in compare(taken.source, taken.file))
