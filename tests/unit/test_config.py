"""Wrong settings and URLs are refused by name, and no secret is repeated."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from walrelay import DuckDBDestination, MemoryDestination, Pipeline, PostgresSource, StdoutDestination
from walrelay.config.settings import copy_settings
from walrelay.destinations.urls import destination_from_url
from walrelay.errors import ConfigError, UnknownDestinationError


@pytest.mark.parametrize(
    "wrong", [{"special_values": "maybe"}, {"max_tables": 0}, {"chunk_bytes": 1}, {"no_such_setting": 1}]
)
def test_a_wrong_setting_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        copy_settings(**wrong)


def test_the_environment_sets_what_code_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALRELAY_MAX_TABLES", "7")
    monkeypatch.setenv("WALRELAY_BUSY_TIMEOUT", "2.5")
    assert copy_settings().max_tables == 7
    assert copy_settings().busy_timeout == timedelta(seconds=2.5)
    assert copy_settings(max_tables=3).max_tables == 3


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://user:hunter2@host:notaport/db",
        "postgresql://user:hun@ter2@host/db",
        "postgresql://user:hun/ter2@host/db",
        "mysql://user:hunter2@host/db",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PostgresSource(url, publication="p")
    for piece in ("hunter2", "ter2"):
        assert piece not in str(caught.value) + repr(caught.value)


def test_a_source_shows_its_place_and_not_its_password() -> None:
    source = PostgresSource("postgresql://me:hunter2@db.example.com:6543/app", publication="p")
    assert source.location == "db.example.com:6543/app"
    assert "hunter2" not in repr(source)


def test_three_slashes_are_relative_and_four_absolute() -> None:
    relative, absolute = (
        destination_from_url("duckdb:///out/x.duckdb"),
        destination_from_url("duckdb:////data/x%20y.db"),
    )
    assert isinstance(relative, DuckDBDestination) and isinstance(absolute, DuckDBDestination)
    assert (str(relative.path), str(absolute.path)) == ("out/x.duckdb", "/data/x y.db")
    assert isinstance(destination_from_url("stdout:"), StdoutDestination)


def test_a_lane_is_chosen_where_there_is_a_choice() -> None:
    assert destination_from_url("duckdb:///x.duckdb").capabilities.lane == "files"
    assert destination_from_url("duckdb:///x.duckdb?threads=2", "frames").capabilities.lane == "frames"
    assert destination_from_url("delta:///lake", "frames").capabilities.lane == "frames"
    for url, lane in (("delta:///lake", "files"), ("duckdb:///x.duckdb", "slow")):
        with pytest.raises(ConfigError, match="lane"):
            destination_from_url(url, lane)


@pytest.mark.parametrize("url", ["kafka://x", "nonsense", "stdout://file"])
def test_an_unknown_destination_is_refused(url: str) -> None:
    with pytest.raises(UnknownDestinationError):
        destination_from_url(url)


def test_an_installed_package_adds_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foo_lake.py").write_text(
        "from walrelay import MemoryDestination\ndef at(url): return MemoryDestination()"
    )
    about = tmp_path / "foo_lake-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foo-lake\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[walrelay.destinations]\nfoo = foo_lake:at\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert destination_from_url("foo://somewhere").name == "memory"


@pytest.mark.parametrize("url", ["duckdb:", "duckdb://x", "duckdb:///", "duckdb:///x?colour=red"])
def test_a_duckdb_url_needs_a_path_and_known_options(url: str) -> None:
    with pytest.raises(ConfigError):
        destination_from_url(url)


def test_a_pipeline_needs_a_known_mode_and_a_publication() -> None:
    source = PostgresSource("postgresql://h/d", publication="p")
    with pytest.raises(ConfigError, match="no such mode"):
        Pipeline(source, MemoryDestination(), mode="sideways")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no publication"):
        Pipeline(PostgresSource("postgresql://h/d"), MemoryDestination())
