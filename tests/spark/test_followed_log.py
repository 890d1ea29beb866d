"""Pipelines that follow a log somebody else writes: each at its own pace, and none of them captures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from walrelay import MemoryDestination, Pipeline, PostgresSource, SqliteStore
from walrelay.errors import ConfigError
from walrelay.log.failures import LogNotFedError
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import open_storage
from walrelay.sources import postgres as postgres_module
from walrelay.stores.names import plain_name


@contextmanager
def capturing(url: str, log: Path, slot: str) -> Iterator[None]:
    """As a user would, from a terminal of its own."""
    command = ["capture", url, "--publication", "p", "--log", str(log), "--slot", slot]
    program = Path(sys.executable).with_name("walrelay")
    process = subprocess.Popen([program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_two_pipelines_follow_one_log_each_from_its_own_place(
    database: str, spark: SparkSession, tmp_path: Path
) -> None:
    slot, log = f"followed_{uuid4().hex[:12]}", tmp_path / "log"
    held = {name: MemoryDestination() for name in ("one", "other")}

    def caught_up(name: str) -> None:
        with closing(SqliteStore(tmp_path / f"{name}.sqlite", name)) as store:
            source = PostgresSource(database, publication="p")
            Pipeline(source, held[name], store, "both", spark=spark, id=name, log=log, follow=True).run("caught-up")

    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
        source.execute("INSERT INTO t SELECT g, 'a' FROM generate_series(1, 10) g")
        with capturing(database, log, slot):
            caught_up("one")
            source.execute("UPDATE t SET v = 'b' WHERE id < 5; DELETE FROM t WHERE id = 9")
            caught_up("one")
            caught_up("other")
            source.execute("INSERT INTO t VALUES (11, 'c')")
            caught_up("other")
        rows = sorted(source.execute("SELECT id, v FROM t").fetchall())
        assert sorted(tuple(row.values()) for row in held["other"].rows("public.t")) == rows
        assert len(held["one"].rows("public.t")) == len(rows) - 1, "it has not looked since"
        positions = ReaderPositions(open_storage(str(log))).positions()
        mine, others = ({at for who, at in positions.items() if plain_name(who) == one} for one in ("one", "other"))
        assert max(mine) < min(others), "the log keeps what the slowest has not taken"
        with capturing(database, log, slot):
            caught_up("one")
        assert sorted(tuple(row.values()) for row in held["one"].rows("public.t")) == rows
        slots = [row[0] for row in source.execute("SELECT slot_name FROM pg_replication_slots").fetchall()]
        assert [one for one in slots if one == slot or "walrelay" in one] == [slot], "nobody else has made one"
        source.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_a_log_that_nobody_writes_is_not_waited_for_for_ever(
    database: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "SLOT_TIMEOUT", postgres_module.SLOT_TIMEOUT / 90)
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    pipeline = Pipeline(
        PostgresSource(database, publication="p"), MemoryDestination(), None, "both", log=tmp_path / "log", follow=True
    )
    with pytest.raises(LogNotFedError) as caught:
        pipeline.run("caught-up")
    assert "walrelay capture" in (caught.value.hint or "")
    slot = f"followed_{uuid4().hex[:12]}"
    with capturing(database, tmp_path / "log", slot):
        monkeypatch.undo()
        pipeline.run("caught-up")
    with psycopg.connect(database, autocommit=True) as source:
        source.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_what_follows_makes_nothing_anew(database: str, tmp_path: Path) -> None:
    source = PostgresSource(database, publication="p")
    with pytest.raises(ConfigError, match="follows"):
        Pipeline(source, MemoryDestination(), None, "both", log=tmp_path / "log", follow=True, begin_anew=True)
