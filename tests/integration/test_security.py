"""Lines of SECURITY.md that no other test holds: what capture tells, keeps, and lets roles of the source do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg.conninfo import make_conninfo

from walrelay.capture.capture import Capture
from walrelay.capture.process import CaptureProcess
from walrelay.config.settings import capture_settings
from walrelay.log.reader import LogReader
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres
PATIENCE = 120.0


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"security_{database.rpartition('_')[2]}"
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def test_the_log_holds_what_is_published_and_nothing_else(database: str, slot: str, tmp_path: Path) -> None:
    """Neither columns nor rows that the publication leaves out; but rows that were deleted since."""
    source = PostgresSource(database, publication="p")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE people (id int PRIMARY KEY, name text, salary text)")
        connection.execute("CREATE PUBLICATION p FOR TABLE people (id, name) WHERE (id < 100)")
        Capture(source, slot=slot, log=tmp_path / "log").run("caught-up")
        connection.execute("INSERT INTO people VALUES (1, 'published-canary', 'column-canary')")
        connection.execute("INSERT INTO people VALUES (100, 'row-canary', 'column-canary')")
        connection.execute("UPDATE people SET salary = 'column-canary too'")
        connection.execute("DELETE FROM people")
        Capture(source, slot=slot, log=tmp_path / "log").run("caught-up")
    found = everything_in(tmp_path)
    assert "published-canary" in found, "deleted, and still there for whoever reads the log"
    assert "column-canary" not in found and "row-canary" not in found


def everything_in(directory: Path) -> str:
    """All files, Parquet decoded as well: there a value may be compressed."""
    parts = []
    for file in directory.rglob("*"):
        if file.is_file():
            parts.append(file.read_bytes().decode(errors="replace"))
        if file.suffix == ".parquet":
            parts.append(json.dumps(pq.read_table(file).to_pylist(), default=str))
    return "\n".join(parts)


def test_the_password_is_neither_an_argument_nor_in_the_environment_of_capture(
    database: str, slot: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    source = PostgresSource(make_conninfo(database, password="password-canary"), publication="p")
    process = CaptureProcess(source, slot=slot, log=tmp_path / "log", settings=capture_settings())
    process.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while process.status() is None:
            assert time.monotonic() < deadline and process.running, "capture does not begin"
            process.check()
            time.sleep(0.05)
        assert process.pid is not None
        running = psutil.Process(process.pid)
        family = [running, *running.children(recursive=True)]
        seen = [word for one in family for word in [*one.cmdline(), *one.environ().values()]]
    finally:
        process.stop()
    assert any("walrelay.capture.child" in word for word in seen)
    assert not any("password-canary" in word for word in seen)


@pytest.mark.parametrize(
    "nonsense", ["", "{", '{"version": 1}', '{"version": 999999}', '[{"table": "\\u0000"}]', "\\xff"]
)
def test_nonsense_under_the_triggers_prefix_stops_nothing(
    nonsense: str, database: str, slot: str, tmp_path: Path
) -> None:
    source = PostgresSource(database, publication="p")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
        Capture(source, slot=slot, log=tmp_path / "log").run("caught-up")
        body = b"\xff\xfe" if nonsense == "\\xff" else nonsense.encode()
        connection.execute("SELECT pg_logical_emit_message(true, 'walrelay.ddl', %s::bytea)", (body,))
        connection.execute("INSERT INTO t VALUES (1)")
        Capture(source, slot=slot, log=tmp_path / "log").run("caught-up")
    assert [change.row for change in LogReader(str(tmp_path / "log")).changes()] == [{"id": 1}]
