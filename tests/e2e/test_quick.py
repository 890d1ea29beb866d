"""Commands that need no Spark load nothing that they do not need: by what is loaded, not by a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from walrelay.log.storage import open_storage
from walrelay.model.names import TableId
from walrelay.model.phases import Ready
from walrelay.stores.sqlite import SqliteStore

ENGINES = {"pyspark", "py4j", "duckdb", "numba", "walrelay.pipeline"}
ASK = """
import sys
from walrelay.cli.app import main
try:
    main(sys.argv[1:])
finally:
    print("loaded", *sys.modules, file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", ASK, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stderr.splitlines()[-1].split()[1:])


def test_help_loads_nothing_but_the_command_line() -> None:
    others = {"pyarrow", "numpy", "sqlalchemy", "psycopg"}
    for arguments in (("--help",), ("replicate", "--help"), ("preflight", "--help")):
        assert not loaded_by(*arguments) & (ENGINES | others), arguments


@pytest.mark.parametrize("command", [("status",), ("top", "--once"), ("quarantine", "list")])
def test_commands_about_the_state_load_neither_an_engine_nor_arrow(tmp_path: Path, command: tuple[str, ...]) -> None:
    store = SqliteStore(tmp_path / "state.sqlite", "p")
    store.update_table_replication_state(TableId(1), Ready())
    store.close()
    open_storage(tmp_path / "log")
    assert not loaded_by(*command, "--state", str(tmp_path)) & (ENGINES | {"pyarrow", "numpy", "psycopg"})


def test_commands_about_source_and_log_load_no_engine(database: str, tmp_path: Path) -> None:
    for arguments in (
        ("preflight", database, "--publication", "p"),
        ("migrate-source", database, "--status"),
        ("quarantine", "list", "--state", str(tmp_path)),
        ("forget-reader", "nobody", "--state", str(tmp_path)),
    ):
        assert not loaded_by(*arguments) & (ENGINES | {"pydantic_settings"}), arguments


def test_commands_about_a_configuration_load_neither_an_engine_nor_arrow(tmp_path: Path) -> None:
    file = str(tmp_path / "pipeline.yaml")
    given = ("--source", "postgresql://me@h/d", "--publication", "p")
    for arguments in (
        ("init", "--yes", *given, file),
        ("config", "check", "-c", file),
        ("config", "show", "-c", file),
        ("config", "schema"),
    ):
        assert not loaded_by(*arguments) & (ENGINES | {"pyarrow", "numpy", "sqlalchemy"}), arguments
