"""The command line as a user meets it: exit codes, what is printed where, and errors that teach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import psycopg
import pytest

from walrelay.testing.postgres import EmbeddedPostgres

PASSWORD = "s3cr3t-passw0rd"


def walrelay(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "walrelay"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, cwd=cwd, check=False
    )


def refused(code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a command that must fail with `code`, without a traceback, a password or a value of a row."""
    done = walrelay(*arguments, env=env)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"({code})" in said, said
    assert "what to do" in said
    assert "Traceback" not in said and PASSWORD not in said and "precious" not in said
    return said


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """State goes where the command is run: not into the repository."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount numeric(8,2), at date, note text)")
        connection.execute(
            "INSERT INTO orders VALUES (1, 9.90, 'infinity', 'precious'), (2, 'NaN', '0044-03-15 BC', NULL)"
        )
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    return database


def test_a_copy_to_duckdb_lands_beside_the_caller_and_ends_with_a_summary(shop: str, tmp_path: Path) -> None:
    done = walrelay("replicate", shop, "duckdb:///out.duckdb", "--publication", "p", "--mode", "copy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "2 rows" in done.stderr and "numeric NaN" in done.stderr
    assert "WARN" not in done.stderr and "log level" not in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.duckdb"]
    with duckdb.connect(str(tmp_path / "out.duckdb")) as connection:
        rows = connection.execute('SELECT id, amount::VARCHAR, "at"::VARCHAR FROM public.orders ORDER BY id').fetchall()
    assert rows == [(1, "9.90", "infinity"), (2, None, "0044-03-15 (BC)")]


def test_stdout_is_one_json_line_a_row_and_nothing_else(shop: str) -> None:
    done = walrelay("replicate", shop, "stdout:", "--publication", "p", "--mode", "copy")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(lines, key=lambda line: line["row"]["id"]) == [
        {
            "table": "public.orders",
            "op": "copy",
            "row": {"id": 1, "amount": "9.90", "at": "infinity", "note": "precious"},
        },
        {"table": "public.orders", "op": "copy", "row": {"id": 2, "amount": None, "at": "0044-03-15 BC", "note": None}},
    ]


def test_a_value_that_cannot_be_held_fails_the_table_when_asked_to(shop: str) -> None:
    done = walrelay("replicate", shop, "null:", "--publication", "p", "--special-values", "error", "--mode", "copy")
    assert done.returncode == 1
    assert "value.special" in done.stderr and "amount" in done.stderr
    assert "Traceback" not in done.stderr and "precious" not in done.stderr


def test_mistakes_about_the_source_say_what_to_do(shop: str, postgres18: EmbeddedPostgres) -> None:
    reader = postgres18.require_password("cli_reader", PASSWORD)
    wrong = reader.replace(PASSWORD, "wr0ng")
    rest = ("null:", "--publication", "p")
    refused("source.authentication", "replicate", wrong, *rest)
    refused("source.unreachable", "replicate", f"postgresql://u:{PASSWORD}@127.0.0.1:1/x", *rest)
    refused("source.unreachable", "replicate", f"postgresql://u:{PASSWORD}@no.such.host.invalid/x", *rest)
    refused("source.no_such_database", "replicate", shop.rpartition("/")[0] + "/nope", *rest)
    refused("config.invalid", "replicate", f"postgresql://u:p@{PASSWORD}@h/x", *rest)
    said = refused("source.no_such_publication", "replicate", shop, "null:", "--publication", "nope")
    assert "This database has: p." in said
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION nothing")
    refused("source.empty_publication", "replicate", shop, "null:", "--publication", "nothing")


def test_mistakes_about_the_destination_say_what_to_do(shop: str, tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("this is no database " * 1000)
    for code, destination in (
        ("destination.not_writable", f"duckdb:///{tmp_path}/missing/out.duckdb"),
        ("destination.not_writable", f"duckdb:///{tmp_path}"),
        ("destination.unreadable", f"duckdb:///{tmp_path}/text.duckdb"),
        ("config.unknown_destination", "ftp://x"),
    ):
        refused(code, "replicate", shop, destination, "--publication", "p")
    assert [entry.name for entry in tmp_path.iterdir()] == ["text.duckdb"]


def test_without_a_jdk_it_says_how_to_get_one(shop: str, tmp_path: Path) -> None:
    said = refused("spark.no_jdk", "replicate", shop, "null:", "--publication", "p", env={"JAVA_HOME": str(tmp_path)})
    assert "openjdk" in said
    refused("spark.no_jdk", "demo", env={"JAVA_HOME": str(tmp_path)})


def test_changes_go_to_stdout_as_json_lines_in_commit_order(shop: str) -> None:
    command = ("replicate", shop, "stdout:", "--publication", "p", "--mode", "changes", "--until", "caught-up")
    first = walrelay(*command)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("UPDATE orders SET note = 'new' WHERE id = 1")
        connection.execute("DELETE FROM orders WHERE id = 2")
        second = walrelay(*command)
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
        )
    assert second.returncode == 0, second.stderr
    lines = [json.loads(line) for line in second.stdout.splitlines()]
    assert [(line["op"], line["row"] and line["row"]["note"], line["old"]) for line in lines] == [
        ("update", "new", None),
        ("delete", None, {"id": 2, "amount": None, "at": None, "note": None}),
    ]
    said = walrelay("status", "--json")
    assert json.loads(said.stdout)["running"] is False
    assert "there is no pipeline's state" in refused("pipeline.no_state", "status", "--state", "nowhere")


def test_capture_is_stopped_cleanly_and_its_log_can_be_replayed(shop: str) -> None:
    command = [
        str(Path(sys.executable).parent / "walrelay"),
        "capture",
        shop,
        "--publication",
        "p",
        "--slot",
        "cli_log",
    ]
    capture = subprocess.Popen([*command, "--log", "log"], stderr=subprocess.PIPE, text=True)
    try:
        with psycopg.connect(shop, autocommit=True) as connection:
            deadline = time.monotonic() + 60
            while not (Path("log") / "status.json").exists():
                assert time.monotonic() < deadline and capture.poll() is None
                time.sleep(0.05)
            connection.execute("INSERT INTO orders (id) VALUES (3)")
            while walrelay("replay", "log").stdout.count("\n") < 1:
                assert time.monotonic() < deadline
            capture.send_signal(signal.SIGTERM)
            assert capture.wait(30) == 0
            confirmed = connection.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'cli_log'"
            ).fetchone()
            connection.execute("SELECT pg_drop_replication_slot('cli_log')")
    finally:
        capture.kill()
    assert capture.stderr is not None
    said = capture.stderr.read()
    capture.stderr.close()
    assert confirmed is not None and f"confirmed up to {confirmed[0]}" in said
    (line,) = walrelay("replay", "log").stdout.splitlines()
    assert json.loads(line)["row"]["id"] == 3
    refused("config.invalid", "replay", "log", "--from", "soon")
    refused("log.not_found", "replay", "elsewhere")


def test_debug_shows_the_traceback(shop: str) -> None:
    done = walrelay("replicate", shop, "null:", "--publication", "nope", "--debug")
    assert done.returncode != 0 and "Traceback" in done.stderr


def test_help_comes_at_once_and_names_every_command() -> None:
    done = walrelay("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("replicate", "preflight", "demo", "capture", "replay", "status"))
    assert walrelay("--version").stdout.startswith("walrelay 0.")


def test_preflight_of_many_tables_is_short_unless_asked(shop: str, postgres18: EmbeddedPostgres) -> None:
    reader = postgres18.require_password("many_reader", PASSWORD)
    with psycopg.connect(shop, autocommit=True) as connection:
        for number in range(30):
            connection.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
    url = f"{reader.rpartition('/')[0]}/{shop.rpartition('/')[2]}"
    short = walrelay("preflight", url, "--publication", "p").stdout
    whole = walrelay("preflight", url, "--publication", "p", "--verbose").stdout
    assert short.count("GRANT SELECT") == 9 and "… and 22 more lines: --verbose prints them" in short
    assert whole.count("GRANT SELECT") == 31


def test_a_missing_right_names_the_grant(shop: str, postgres18: EmbeddedPostgres) -> None:
    reader = postgres18.require_password("poor_reader", PASSWORD)
    url = f"{reader.rpartition('/')[0]}/{shop.rpartition('/')[2]}"
    done = walrelay("replicate", url, "null:", "--publication", "p", "--mode", "copy")
    assert done.returncode == 1 and "GRANT SELECT ON public.orders TO poor_reader;" in done.stderr, done.stderr
