"""The example that brings a database to a new major version works as it stands, from the oldest to the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.e2e.test_examples import EXAMPLES
from tests.faults.capture_kit import wait_until
from tests.faults.pipeline_kit import drop_slot
from tests.warehouse.postgres_kit import fresh_database
from tests.warehouse.test_postgres_pipeline import dump
from walrelay.spark.class_archive import archive_options
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.long, pytest.mark.timeout(900)]

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE people (id serial PRIMARY KEY, name text, feels mood, paid numeric(12, 2), tags text[]);
CREATE TABLE visits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person int, at timestamptz DEFAULT now());
CREATE PUBLICATION everything FOR ALL TABLES;
INSERT INTO people (name, feels, paid, tags) SELECT repeat('n' || g, 40), 'ok', g / 7.0, ARRAY['a', NULL]
  FROM generate_series(1, 50000) g;
INSERT INTO visits (person) SELECT g FROM generate_series(1, 2000) g;
"""


def test_an_application_moves_from_14_to_18_while_it_writes(
    postgres_server: Callable[[int], EmbeddedPostgres], tmp_path: Path
) -> None:
    quick = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive_options()}"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": quick}
    with fresh_database(postgres_server(14)) as old, fresh_database(postgres_server(18)) as new:
        with psycopg.connect(old, autocommit=True) as application:
            application.execute(TABLES)
            command = [sys.executable, str(EXAMPLES / "new_major_version.py"), old, "everything", new, str(tmp_path)]
            moving = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=(tmp_path / "said").open("wb"), text=True
            )
            try:
                for number in range(20):
                    application.execute("INSERT INTO visits (person) VALUES (%s)", (number,))
                    application.execute("UPDATE people SET paid = paid + 1 WHERE id %% 20 = %s", (number,))
                wait_until(lambda: moving.poll() is not None or is_there(new), "the tables are there")
                application.execute("DELETE FROM people WHERE id % 3 = 0")
                (tmp_path / "switch").touch()
                said, _ = moving.communicate(timeout=600)
            finally:
                moving.kill()
        drop_slot(old, "new_major_version")
        assert moving.returncode == 0, (tmp_path / "said").read_text()
        assert said.splitlines()[1:] == [
            "2 tables are equal",
            "2 sequences set; let programs connect to the new server",
        ]
        assert dump(new) == dump(old)
        with psycopg.connect(new, autocommit=True) as application:
            for table, last in (("people", 50_000), ("visits", 2_020)):
                made = application.execute(f"INSERT INTO {table} DEFAULT VALUES RETURNING id".encode()).fetchone()
                assert made == (last + 1,), "it counts on from where the old one was"


def is_there(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        asked = "SELECT to_regclass('public.people') IS NOT NULL AND to_regclass('public.visits') IS NOT NULL"
        return bool((connection.execute(asked).fetchone() or (False,))[0])
