"""A destination that a newer version has written is refused before anything in it is changed."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.format import FORMAT, readable
from walrelay.destinations.lake.identity import lake_id
from walrelay.errors import DestinationNewerError

NEWER = f"{FORMAT + 1}:0123"


def test_ids_without_a_number_are_of_the_first_format() -> None:
    for id_ in ("0123456789abcdef", "1:0123", "x:y"):
        assert readable(id_, "here") == id_
    with pytest.raises(DestinationNewerError, match=f"here is of format {FORMAT + 1}; this walrelay knows") as refused:
        readable(NEWER, "here")
    assert "a newer one" in refused.value.hint


def test_a_duckdb_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file, context = tmp_path / "out.duckdb", DestinationContext("p", copy_settings())
    made = DuckDBDestination(file)
    made.startup(context)
    made.shutdown()
    with duckdb.connect(str(file)) as connection:
        connection.execute("UPDATE _walrelay.file SET id = ?", [NEWER])
        connection.execute("DROP TABLE _walrelay.progress CASCADE")  # a newer version may have no use for it
    before = file.read_bytes()
    with pytest.raises(DestinationNewerError):
        DuckDBDestination(file).startup(context)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "_walrelay"
    lake_id(own)
    own.joinpath("lake.json").write_text(json.dumps({"id": NEWER}))
    with pytest.raises(DestinationNewerError):
        lake_id(own)
