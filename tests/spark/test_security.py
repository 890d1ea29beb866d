"""Lines of SECURITY.md that need a whole pipeline: hostile names, passwords that stay nowhere, values not told."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.spark.live_kit import Live
from walrelay.config.settings import copy_settings
from walrelay.errors import WalrelayError
from walrelay.postgres.source import PostgresSource

pytestmark = [pytest.mark.postgres, pytest.mark.spark]
HOSTILE = "x\"'; DROP TABLE victim; --"
QUOTED = '"' + HOSTILE.replace('"', '""') + '"'
KIND = QUOTED.replace("x", "kind")


def test_hostile_names_are_names_and_no_password_stays_anywhere(live: Live, tmp_path: Path) -> None:
    live.sql(
        "CREATE TABLE victim (id int PRIMARY KEY); INSERT INTO victim VALUES (1)",
        f"CREATE TYPE {KIND} AS ENUM ('a', 'b')",
        f"CREATE TABLE {QUOTED} ({QUOTED} int PRIMARY KEY, kind {KIND})",
        f"INSERT INTO {QUOTED} VALUES (1, 'a'), (2, 'b')",
        f"CREATE PUBLICATION {QUOTED} FOR TABLE victim, {QUOTED}",
    )
    live.source = PostgresSource(make_conninfo(live.url, password="password-canary"), publication=HOSTILE)
    live.pipeline().run(until="caught-up")
    live.sql(
        f"UPDATE {QUOTED} SET {QUOTED} = 3 WHERE {QUOTED} = 1",
        f'ALTER TABLE {QUOTED} ADD COLUMN {QUOTED[:-1]}2" text',
        f"DELETE FROM {QUOTED} WHERE {QUOTED} = 2",
        "INSERT INTO victim VALUES (2)",
    )
    live.pipeline().run(until="caught-up")
    with psycopg.connect(live.url) as connection:
        assert connection.execute("SELECT count(*) FROM victim").fetchone() == (2,)
    with duckdb.connect(str(live.file)) as copy:
        assert copy.execute("SELECT count(*) FROM public.victim").fetchone() == (2,)
        assert copy.execute(f"SELECT {QUOTED}, kind FROM public.{QUOTED}").fetchall() == [(3, "a")]
        own = copy.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = '_walrelay'").fetchall()
        assert own
        told = [copy.execute(f'SELECT * FROM _walrelay."{name}"').fetchall() for (name,) in own]
    assert "password-canary" not in str(told)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"password-canary" not in file.read_bytes(), file
    assert not any("password-canary" in notice for notice in live.heard.notices)


def test_values_that_cannot_be_held_are_not_told(live: Live) -> None:
    """Neither of a copy nor of changes, in errors, notices or what is kept for `status`."""
    live.sql(
        "CREATE TABLE t (id int PRIMARY KEY, at interval, secret text)",
        "INSERT INTO t VALUES (1, 'infinity', 'value-canary')",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    pipeline = live.pipeline(settings=copy_settings(special_values="error", retry_delay=0.05, retries=0))
    with pytest.raises(WalrelayError) as caught:
        pipeline.run(until="caught-up")
    status = pipeline.status()
    told = [repr(caught.value), str(caught.value), caught.value.hint, *live.heard.notices, repr(status)]
    told += [f"{report.error}{report.error!r}" for report in live.heard.failed]
    assert live.heard.failed, "it was told that the table fails"
    assert not any("value-canary" in one for one in told)
