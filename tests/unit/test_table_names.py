"""Which table a name means in a range of the log: the same for ever, however the log goes on or is merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_duckdb_collapse import SmallLog
from walrelay.errors import TableMissingError
from walrelay.log.compaction import CompactionSettings, Compactor
from walrelay.log.manifest import Manifest
from walrelay.log.reader import LogReader
from walrelay.log.schemas import schema_path
from walrelay.log.table_names import table_named, version_at
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.model.schema_json import version_to_json

ORDERS, OTHER = TableName("public", "orders"), TableName("public", "other")


def shape(table: int, name: TableName) -> TableSchema:
    return TableSchema(table, name, (Column("id", PgType(23, "int4"), attnum=1),), primary_key=("id",))


def change(log: SmallLog, table: int, version: int, name: TableName) -> Lsn:
    """A change of the table, in a segment of its own; the position where it ends."""
    end = log.commit([(shape(table, name), version, {"op": "insert", "row": {"id": 1}})])
    log.close_segment()
    return end


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path)


def named(log: SmallLog, name: TableName, to: Lsn, after: int = 0, **more: set[int]) -> tuple[int, int]:
    found = table_named(LogReader(log.root), name, Lsn(after), to, **more)
    return found.schema.id, found.version


def test_a_version_holds_from_its_commit_on(log: SmallLog) -> None:
    first, second = change(log, 1, 1, ORDERS), change(log, 1, 2, OTHER)
    reader = LogReader(log.root)
    assert [version_at(reader, 1, to).version for to in (first, second)] == [1, 2]
    with pytest.raises(TableMissingError):
        version_at(reader, 9, second)
    with pytest.raises(TableMissingError):
        version_at(reader, 1, log.start)


def test_who_has_the_name_at_the_end_comes_before_who_had_it(log: SmallLog) -> None:
    first = change(log, 1, 1, ORDERS)
    renamed = change(log, 1, 2, OTHER)
    taken = change(log, 2, 1, ORDERS)
    assert named(log, ORDERS, first) == (1, 1)
    assert named(log, ORDERS, renamed) == (1, 2)
    assert named(log, ORDERS, taken) == (2, 1)
    assert named(log, ORDERS, taken, among={1}) == (1, 2)
    with pytest.raises(TableMissingError, match="between"):
        named(log, OTHER, first)
    with pytest.raises(TableMissingError):
        named(log, ORDERS, renamed, after=renamed)


def test_of_two_that_are_known_by_the_name_the_last_seen_has_it_also_in_merged_segments(log: SmallLog) -> None:
    """A table that loses its name is not heard of until its next change; one that gets it back has no new version."""
    ends = [change(log, table, 1, ORDERS) for table in (1, 2, 1, 2, 2, 1)]
    expected = [(1, 1), (2, 1), (1, 1), (2, 1), (2, 1), (1, 1)]
    assert [named(log, ORDERS, to) for to in ends] == expected
    Compactor(log.storage, Manifest(log.storage), 1, CompactionSettings(fan_in=2)).run_once()
    assert len(LogReader(log.root).entries()) < len(ends)
    assert [named(log, ORDERS, to) for to in ends] == expected


def test_a_version_of_a_segment_that_is_not_there_yet_does_not_count(log: SmallLog) -> None:
    """A crash may follow, and another version may then have its number."""
    end = change(log, 1, 1, ORDERS)
    reader = LogReader(log.root)
    for name in (OTHER, TableName("public", "third")):
        early = SchemaVersion(shape(1, name), 2, Lsn(end + 56))
        body = {**version_to_json(early), "fingerprint": "x"}
        log.storage.put(schema_path(1, 2), json.dumps(body).encode())
        assert version_at(reader, 1, Lsn(end + 1000)).version == 1
    later = change(log, 1, 3, OTHER)
    assert [one.schema.name.name for one in reader.versions(later)[1]] == ["orders", "third", "other"]
