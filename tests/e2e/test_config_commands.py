"""`walrelay init` and `walrelay config` as a user meets them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from walrelay.testing.postgres import EmbeddedPostgres

WALRELAY = str(Path(sys.executable).parent / "walrelay")
PASSWORD = "s3cr3t@/passw0rd"
RIGHT = """\
source:
  url: {url}
  publication: p
  slot: wrong_config
destination:
  url: duckdb:///out.duckdb
store:
  path: state
"""


def walrelay(cwd: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [WALRELAY, *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr and PASSWORD not in done.stdout + done.stderr, done.stderr
    return done


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    return database


def test_init_in_a_terminal_asks_five_questions_and_never_writes_over_a_file(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    asked = subprocess.Popen([WALRELAY, "init"], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    answers = [b"postgresql://me:s3cr3t%40%2Fpassw0rd@h/d", b"shop", b"", b"", b"10s"]
    for at, answer in enumerate(answers, 1):
        while f"{at}/5".encode() not in said or not said.rstrip(b" ").endswith((b":", b"]:")):
            said += os.read(ours, 4096)
        os.write(ours, answer + b"\n")
        said += b"\n"
    assert asked.wait(60) == 0, said
    os.close(ours)
    text = (tmp_path / "pipeline.yaml").read_text()
    assert "postgresql://me:${PGPASSWORD}@h/d" in text and 'every: "10s"' in text and "path: walrelay-state" in text
    assert (tmp_path / "pipeline.yaml").stat().st_mode & 0o777 == 0o600
    assert walrelay(tmp_path, "config", "check", "-c", "pipeline.yaml", PGPASSWORD=PASSWORD).returncode == 0
    without = walrelay(tmp_path, "config", "check", "-c", "pipeline.yaml")
    assert without.returncode == 1 and "source.url, pipeline.yaml line" in without.stderr
    assert "the environment has no variable PGPASSWORD" in without.stderr
    again = walrelay(tmp_path, "init", "--yes", "--source", "postgresql://h/d", "--publication", "p")
    assert again.returncode == 1 and "is there already" in again.stderr
    assert (tmp_path / "pipeline.yaml").read_text() == text


def test_init_without_a_terminal_takes_options_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    assert "--source and --publication" in walrelay(tmp_path, "init").stderr
    wrong = walrelay(tmp_path, "init", "--source", "mysql://h/d", "--publication", "p", "--every", "5 moons")
    assert wrong.returncode == 1 and "pipeline.every, --every: it must be a length of time" in wrong.stderr
    assert list(tmp_path.iterdir()) == []
    password = quote(PASSWORD, safe="")
    made = walrelay(
        tmp_path, "init", "--yes", "mine.yaml", "--source", "host=h dbname=d password='a b'", "--publication", "on",
        "--destination", f"clickhouse://u:{password}@h/d", "--store", f"postgresql://s:{password}@h/s",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    secrets = {"PGPASSWORD": "x", "DESTINATION_PASSWORD": "x", "STORE_PASSWORD": "x"}
    assert all(name in made.stdout for name in secrets)
    checked = walrelay(tmp_path, "config", "check", "-c", "mine.yaml", **secrets)
    assert checked.returncode == 0, checked.stderr
    forced = walrelay(tmp_path, "init", "-y", "--force", "mine.yaml", "--source", "service=x", "--publication", "p")
    assert forced.returncode == 0 and "service=x" in (tmp_path / "mine.yaml").read_text()


def test_config_says_what_is_right_what_holds_and_whether_the_source_is_ready(
    shop: str, postgres18: EmbeddedPostgres, tmp_path: Path
) -> None:
    reader = postgres18.require_password("config_reader", "s3cr3t")
    url = shop.replace(
        postgres18.url.rpartition("/")[0], reader.rpartition("/")[0].replace(":s3cr3t@", ":${SHOP_PASSWORD}@")
    )
    (tmp_path / "pipeline.yaml").write_text(RIGHT.format(url=f"'{url}'"))
    command = ("config", "check", "-c", "pipeline.yaml")
    right = walrelay(tmp_path, *command, "--json", SHOP_PASSWORD="s3cr3t")
    assert json.loads(right.stdout) == {"ok": True, "problems": [], "warnings": []}
    ready = walrelay(tmp_path, *command, "--connect", "--json", SHOP_PASSWORD="s3cr3t")
    found = json.loads(ready.stdout)
    assert found["preflight"]["server_version"].startswith("18")
    assert found["ok"] is (ready.returncode == 0) is found["preflight"]["ok"]
    refused = walrelay(tmp_path, *command, "--connect", SHOP_PASSWORD="wrong")
    assert refused.returncode == 1 and "source.authentication" in refused.stdout
    wrong = walrelay(tmp_path, *command, "--json", "--set", "source.slott=x", SHOP_PASSWORD="s3cr3t")
    assert wrong.returncode == 1
    [problem] = json.loads(wrong.stdout)["problems"]
    assert (problem["key"], problem["from"]) == ("source.slott", "--set")
    assert "did you mean slot?" in problem["message"] and "slot" in problem["hint"]
    shown = walrelay(tmp_path, "config", "show", "-c", "pipeline.yaml", SHOP_PASSWORD="s3cr3t")
    assert "slot: wrong_config  # pipeline.yaml line 4" in shown.stdout and "s3cr3t" not in shown.stdout
    as_json = walrelay(tmp_path, "config", "show", "-c", "pipeline.yaml", "--json", SHOP_PASSWORD="s3cr3t")
    assert json.loads(as_json.stdout)["source.slot"]["line"] == 4
    assert walrelay(tmp_path, "config", "check").returncode == 2, "the command itself is wrong"
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("  publication: q", "source.publication, pipeline.yaml line 3: "),
        ("  publication: p\n  publicaton: p", "source.publicaton, pipeline.yaml line 4: no such key"),
        ("  publication: p\n  migrate_source: maybe", "source.migrate_source, pipeline.yaml line 4: "),
        ("  publication: p\nlog: {follow: true}\npipeline: {begin_anew: true}", "neither makes one anew"),
        ("  publication: p\ntables: {orders: {hash: [x], mask: [x]}}", "tables.orders, pipeline.yaml line 4: "),
    ],
)
def test_a_wrong_configuration_leaves_nothing_at_a_source_that_is_there(
    wrong: str, words: str, shop: str, tmp_path: Path
) -> None:
    text = RIGHT.format(url=shop).replace("  publication: p", wrong)
    if "\nlog" in wrong or "\ntables" in wrong:
        text = text.replace("  slot: wrong_config\n", "")
    (tmp_path / "pipeline.yaml").write_text(text)
    done = walrelay(tmp_path, "run", "-c", "pipeline.yaml", "--until", "caught-up")
    assert done.returncode == 1 and words in done.stderr and "what to do" in done.stderr, done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipeline.yaml"]
    with psycopg.connect(shop) as connection:
        ours = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(ours).fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'walrelay'").fetchone() == (0,)


def test_a_database_s_page_of_keys_begins_with_a_configuration_that_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    blocks = page.split("```")
    (tmp_path / "pipeline.yaml").write_text(blocks[1].removeprefix("yaml\n"))
    [commands] = [block.removeprefix("sh\n") for block in blocks if block.startswith("sh\n")]
    for line in filter(None, commands.splitlines()):
        arguments = line.partition("#")[0].split()
        assert arguments[0] == "walrelay"
        done = walrelay(tmp_path, *arguments[1:], PGPASSWORD="x")
        assert done.returncode == 0, done.stderr
