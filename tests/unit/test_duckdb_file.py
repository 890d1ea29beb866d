"""The DuckDB in which the file is attached: another takes its place from time to time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb import file as duckdb_file
from walrelay.destinations.duckdb.file import DuckDBFile


class Counting(DuckDBFile):
    sessions = 0

    def _new_session(self) -> Any:
        self.sessions += 1
        return super()._new_session()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(duckdb_file, "LONGEST_SERVICE", 3)
    file = Counting(tmp_path / "out.duckdb", {})
    file.context = DestinationContext("test", copy_settings())
    with file.alone() as (connection, _):
        connection.execute("CREATE TABLE t (n int)")
    yield file
    file.close()


def add(file: Counting, number: int) -> None:
    with file.alone() as (connection, _):
        connection.execute(f"INSERT INTO t VALUES ({number})")


def rows(file: Counting) -> list[Any]:
    with file.alone() as (connection, _):
        return connection.execute("SELECT n FROM t ORDER BY n").fetchall()


def test_after_so_many_uses_another_takes_its_place_and_nothing_is_lost(file: Counting) -> None:
    for number in range(8):
        add(file, number)
    assert file.sessions == 3
    assert rows(file) == [(number,) for number in range(8)]


def test_not_while_a_load_goes_on_beside(file: Counting) -> None:
    with file.beside(in_order=True) as ((guest,), catalog):
        guest.execute(f"CREATE TABLE {catalog}.main.loaded AS SELECT 1 AS one")
        for number in range(8):
            add(file, number)
        guest.execute(f"INSERT INTO {catalog}.main.loaded VALUES (2)")
    assert file.sessions == 1
    add(file, 8)
    assert rows(file) == [(number,) for number in range(9)]
    assert file.sessions == 2
