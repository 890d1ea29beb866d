"""Lakes that are looked after between two batches: fewer files, the same rows, and the position reached stays."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from tests.lake.lake_kit import DeltaLake, IcebergLake, Lake, Opened, session_of
from walrelay.destinations.base import Destination
from walrelay.destinations.iceberg.maintenance import maintain
from walrelay.failpoints import FailpointError
from walrelay.model.lsn import Lsn
from walrelay.testing.destination_contract import ContractSource
from walrelay.testing.failpoints import armed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROUNDS = [
    f"INSERT INTO keyed SELECT g, 'round {n}', g FROM generate_series({n}00, {n}20) g;"
    f" INSERT INTO loose SELECT {n}, 'same' FROM generate_series(1, 3)"
    for n in range(1, 7)
]
LAST = "UPDATE keyed SET note = 'again' WHERE id BETWEEN 100 AND 105; DELETE FROM keyed WHERE id = 106"
TABLES = ("keyed", "loose")


def copied(source: ContractSource, destination: Destination) -> None:
    for table in TABLES:
        source.copy(destination, table)


def take_each(source: ContractSource, destination: Destination) -> None:
    """Commit by commit, so that there are many files."""
    position = source.batch().after
    for end in source.commits():
        destination.write_events(source.batch(position, end))
        position = end


def applied(source: ContractSource, destination: Destination) -> list[Lsn | None]:
    return [destination.applied_lsn(source.schema(table).id) for table in TABLES]


def assert_same(source: ContractSource, lake: Lake, *tables: str) -> None:
    for table in tables or TABLES:
        wanted = source.connection.execute(f"SELECT * FROM {table}").fetchall()  # type: ignore[call-overload]
        assert sorted(map(repr, wanted)) == sorted(repr(tuple(row.values())) for row in lake.held(table)), table


def test_few_files_are_made_of_many_and_neither_rows_nor_positions_change(
    source: ContractSource, lake: Lake, opened: Opened, heard: list[str]
) -> None:
    # Iceberg leaves fewer than five alone.
    rounds = ROUNDS if lake.name == "iceberg" else ROUNDS[:3]
    with opened(lake.destination(maintain_every=None)) as destination:
        copied(source, destination)
        source.do(*rounds, LAST)
        take_each(source, destination)
        many = {table: lake.files(table) for table in TABLES}
        source.do("INSERT INTO keyed VALUES (5000, 'one more', 1)")
    with opened(lake.destination(maintain_every=timedelta(0))) as destination:
        last = source.batch()
        destination.write_events(last)
        few = {table: lake.files(table) for table in TABLES}
        assert {table: len(few[table]) < len(many[table]) for table in TABLES} == {"keyed": True, "loose": True}
        assert_same(source, lake)
        assert applied(source, destination) == [last.to, last.to]
        destination.write_events(last)
        assert {table: lake.files(table) for table in TABLES} == few, "nothing has changed since"
    with opened(lake.destination()) as destination:
        assert applied(source, destination) == [last.to, last.to]
        source.do("UPDATE keyed SET note = 'last' WHERE id < 300; DELETE FROM loose WHERE n = 1")
        destination.write_events(source.batch(last.to))
        assert_same(source, lake)
    assert heard == []


def test_what_goes_wrong_is_told_and_stops_nothing(
    source: ContractSource, lake: Lake, opened: Opened, heard: list[str]
) -> None:
    source.do("INSERT INTO loose SELECT g, 'x' FROM generate_series(1, 9) g")
    with opened(lake.destination(maintain_every=timedelta(0))) as destination:
        source.copy(destination, "loose")
        begun = source.batch().to
        source.do("INSERT INTO loose VALUES (10, 'more')")
        # What only somebody reads who looks at the rows that are there: to append some is possible all the same.
        lost = "copy-*.parquet" if lake.name == "delta" else "metadata/*-m0.avro"
        for one in (lake.path / "public" / "loose").glob(lost):
            one.unlink()
        batch = source.batch(begun)
        assert destination.write_events(batch).durable
        assert destination.applied_lsn(source.schema("loose").id) == batch.to
    assert len(heard) == 1 and "loose could not be maintained" in heard[0], heard


def test_rows_are_clustered_by_the_key_under_the_name_that_it_has(
    source: ContractSource, tmp_path: Path, opened: Opened, lake_spark: SparkSession
) -> None:
    lake = DeltaLake(tmp_path / "lake")
    with opened(lake.destination(maintain_every=timedelta(0), cluster_by_key=True)) as destination:
        copied(source, destination)
        begun = source.batch().to
        source.do(ROUNDS[1], 'ALTER TABLE keyed RENAME id TO "the id"', ROUNDS[0], ROUNDS[2])
        destination.write_events(source.batch(begun))
        assert_same(source, lake)
    ordered = {
        table: json.loads(one["operationParameters"]["zOrderBy"])
        for table in TABLES
        for one in deltalake.DeltaTable(str(lake.path / "public" / table)).history()
        if one["operation"] == "OPTIMIZE"
    }
    assert ordered["keyed"] == ["the id"] and not ordered.get("loose"), "without a key there is no order"
    ids = [row["the id"] for row in lake.held("keyed")]
    assert ids == sorted(ids)


def test_deletion_vectors_mark_rows_and_compaction_takes_them_away(
    source: ContractSource, tmp_path: Path, opened: Opened, lake_spark: SparkSession
) -> None:
    lake = DeltaLake(tmp_path / "lake")
    options = {"deletion_vectors": True, "keep_versions": timedelta(0)}
    source.do("INSERT INTO keyed SELECT g, 'old', g FROM generate_series(1, 100) g")
    with opened(lake.destination()) as destination:
        source.copy(destination, "keyed")  # without them; from the next copy on the table has them
    with opened(lake.destination(maintain_every=None, **options)) as destination:
        source.copy(destination, "keyed")
        copy = lake.files("keyed")
        begun = source.batch().to
        source.do("UPDATE keyed SET note = 'new' WHERE id < 10; DELETE FROM keyed WHERE id = 50")
        destination.write_events(source.batch(begun))
        assert copy < lake.files("keyed"), "it was not written anew"
        middle = source.batch().to
        source.do("DELETE FROM keyed WHERE id > 60")
    with opened(lake.destination(maintain_every=timedelta(0), **options)) as destination:
        destination.write_events(source.batch(middle))
        assert not copy & lake.files("keyed")
        there = {one.name for one in (lake.path / "public" / "keyed").rglob("part-*.parquet")}
        assert there == {one.rpartition("/")[2] for one in lake.files("keyed")}, "no version is kept but the last"
        # A copy again into the table that is there.
        assert_same(source, lake, "keyed")
        source.copy(destination, "keyed")
        assert_same(source, lake, "keyed")


def test_the_position_outlives_the_snapshots_and_what_was_only_staged_goes_with_them(
    source: ContractSource, tmp_path: Path, opened: Opened, lake_spark: SparkSession
) -> None:
    iceberg = IcebergLake(tmp_path / "lake")
    session = session_of(iceberg, lake_spark)
    with opened(iceberg.destination()) as destination:
        copied(source, destination)
        source.do(*ROUNDS[:2])
        batch = source.batch()
        with armed("destination.staged=fail:1"), pytest.raises(FailpointError):
            destination.write_events(batch)
        destination.write_events(batch)
        assert any("wap.id" in snapshot_summary(one) for one in iceberg.table("keyed").snapshots())
        for table in TABLES:
            maintain(session, f"`public`.`{table}`", timedelta(0), keep_last=1)
            assert [one.snapshot_id for one in iceberg.table(table).snapshots()] == [
                iceberg.table(table).metadata.current_snapshot_id
            ]
    with opened(iceberg.destination()) as destination:
        assert applied(source, destination) == [batch.to, batch.to]
        destination.write_events(batch)
        assert all(len(iceberg.table(table).snapshots()) == 1 for table in TABLES), "it was there already"
    assert_same(source, iceberg)


def snapshot_summary(snapshot: Any) -> dict[str, str]:
    return dict(snapshot.summary.additional_properties)
