"""Names, needs and progress of lakes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from walrelay.config.settings import copy_settings
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.destinations.lake.destination import maintain_every
from walrelay.destinations.lake.maintenance import Maintenance
from walrelay.destinations.lake.names import directory_name, refuse_twin_columns
from walrelay.destinations.lake.progress_file import ProgressFile
from walrelay.destinations.urls import destination_from_url
from walrelay.errors import ConfigError, NameClashError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.spark.needs import check_version, settings_for


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("orders", "orders"),
        ("Größe 2.0", "Größe 2.0"),
        ("_hidden", "~5Fhidden"),
        (".dot", "~2Edot"),
        ("a/b", "a~2Fb"),
        ("100%", "100~25"),
        ("a~2Fb", "a~7E2Fb"),
    ],
)
def test_a_name_becomes_a_directory_that_no_other_name_becomes(name: str, directory: str) -> None:
    assert directory_name(name) == directory


def test_columns_that_spark_cannot_tell_apart_are_refused() -> None:
    text = PgType(25, "text")
    schema = TableSchema(1, TableName("public", "t"), (Column("Id", text), Column("id", text)))
    with pytest.raises(NameClashError, match="Id, id"):
        refuse_twin_columns(schema)


def test_a_line_of_progress_counts_while_the_table_says_what_it_said(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    ProgressFile(path).record({7: Lsn(100), 8: Lsn(0)}, Lsn(200))
    again = ProgressFile(path)
    again.record({7: Lsn(100)}, Lsn(150))
    assert again.reached(7, Lsn(100)) == Lsn(200), "an older batch takes nothing back"
    assert again.reached(7, Lsn(90)) == Lsn(90), "an older table was put in its place"
    assert again.reached(8, Lsn(0)) == Lsn(200), "only a copy is in it, and nothing has changed since"
    assert again.reached(9, Lsn(0)) is None
    again.forget(8)
    assert ProgressFile(path).reached(8, Lsn(0)) is None


def test_progress_is_recorded_and_forgotten_by_several_threads(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    file = ProgressFile(path)

    def work(first: int) -> None:
        for turn in range(1, 40):
            file.record({first + number: Lsn(0) for number in range(turn)}, Lsn(turn))
            file.forget(first)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 4000, 1000)))
    kept = ProgressFile(path)
    for first in range(0, 4000, 1000):
        assert kept.reached(first, Lsn(0)) is None
        assert kept.reached(first + 37, Lsn(0)) == Lsn(39)


class Clock:
    now = 1000.0


def test_a_table_is_looked_after_when_it_has_changed_and_the_time_is_over(tmp_path: Path) -> None:
    path, clock, every = tmp_path / "maintenance.json", Clock(), timedelta(seconds=60)

    def again() -> Maintenance:
        return Maintenance(path, every, lambda: clock.now)

    assert again().due({7: Lsn(100), 8: Lsn(0)}) == [], "the time begins"
    clock.now += 60
    assert again().due({7: Lsn(100), 8: Lsn(0)}) == [7], "the other one was only copied"
    again().done(7, Lsn(100))
    clock.now += 60
    assert again().due({7: Lsn(100)}) == [], "no change came"
    assert again().due({7: Lsn(101)}) == [7]
    again().failed(7)
    assert again().due({7: Lsn(101)}) == [], "not at once"
    clock.now += 60
    assert again().due({7: Lsn(101)}) == [7]
    again().forget(7)
    assert again().due({7: Lsn(102)}) == [], "a copy has taken its place"
    assert Maintenance(tmp_path / "other.json", None).due({7: Lsn(1)}) == []
    assert not (tmp_path / "other.json").exists()


def test_needs_join_what_the_user_has_set() -> None:
    needs = SparkNeeds(packages=("a:b:1",), extensions=("x.Y",), settings={"k": "theirs"})
    made = settings_for(needs, {"spark.jars.packages": "c:d:2", "k": "mine"})
    assert made["spark.jars.packages"] == "c:d:2,a:b:1"
    assert made["spark.sql.extensions"] == "x.Y"
    assert made["k"] == "mine"
    assert settings_for(SparkNeeds(), {"k": "v"}) == {"k": "v"}


@pytest.mark.parametrize(("given", "seconds"), [("10s", 10), ("1.5m", 90), ("250ms", 0.25), ("3", 3)])
def test_a_time_may_be_written_as_people_do(given: str, seconds: float) -> None:
    assert copy_settings(every=given).every == timedelta(seconds=seconds)


@pytest.mark.parametrize("wrong", ["ten", "-1s", "10 parsecs"])
def test_a_time_that_is_none_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match="every"):
        copy_settings(every=wrong)


def test_how_often_a_lake_is_looked_after_stands_in_its_url() -> None:
    assert "maintain_every" in said_of("delta:///lake?maintain_every=soon")
    assert "keep_snapshots" in said_of("iceberg:///lake?keep_snapshots=-1s")
    assert "keep_versions" in said_of("delta:///lake?keep_versions=soon")
    assert "deletion_vectors" in said_of("delta:///lake?deletion_vectors=perhaps")
    assert "format_version" in said_of("delta:///lake?format_version=2")
    for url in (
        "delta:///lake?maintain_every=10m&keep_versions=24h&deletion_vectors=yes",
        "iceberg:///lake?maintain_every=never&keep_snapshots=24h",
    ):
        destination_from_url(url)
    assert maintain_every({}) == timedelta(hours=1)
    assert maintain_every({"maintain_every": "10m"}) == timedelta(minutes=10)
    assert maintain_every({"maintain_every": "never"}) is None


def said_of(url: str) -> str:
    with pytest.raises(ConfigError) as caught:
        destination_from_url(url)
    return caught.value.message


def test_a_lake_is_a_path() -> None:
    assert destination_from_url("delta:////data/lake").path == Path("/data/lake")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="path"):
        destination_from_url("delta://host/lake")


def test_packages_that_are_made_for_another_spark_are_refused_before_anything_is_done() -> None:
    """They start, and copy, and fail when the first change is merged."""
    needs = SparkNeeds(packages=("io.delta:delta-spark_4.1_2.13:4.4.0",), version="4.1")
    check_version(needs, {}, "delta", "4.1.3")
    check_version(needs, {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}, "delta", "4.2.0")
    check_version(SparkNeeds(), {}, "duckdb", "4.3.0")
    for found in ("4.3.0", "4.10.0"):
        with pytest.raises(ConfigError, match=f"made for Spark 4.1, and {found} is installed") as caught:
            check_version(needs, {}, "delta", found)
        assert "pip install 'pyspark==4.1.*'" in caught.value.hint
