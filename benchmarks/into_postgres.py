"""Into another Postgres: a copy against `psql COPY | psql COPY`, and a backlog against native logical replication.

Two servers on this machine, each with its own data. A copy ends with its primary key made, on both sides. Of a backlog
both have the same: the pipeline's capture is stopped (SIGSTOP) and the subscription is disabled while it is made; then
one is let go after the other, and the clock stops when the backlog's last row is visible in its target.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.machine import describe_machine
from benchmarks.pipeline_run import running, status_of
from benchmarks.pipeline_speed import INSERTS, MIXED
from benchmarks.tables import make_bench_table
from walrelay import Pipeline, PostgresDestination, PostgresSource
from walrelay.spark.session import spark_session
from walrelay.testing.postgres import EmbeddedPostgres

GOALS = {"copy": 0.9, "inserts": 1.0, "mixed": 1.0}
POLL_SECONDS = 0.005
SETTINGS = {
    "max_wal_size": "16GB",
    "max_replication_slots": "64",
    "max_wal_senders": "64",
    "max_worker_processes": "32",
}
THEIRS = "theirs"
"""The database of the subscription; ours is the server's first."""


@dataclass
class Race:
    """Seconds of the timed rounds."""

    kind: str
    rows: int
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.theirs) / statistics.median(self.ours)


def measure_into_postgres(rows: int, changes: int, repeat: int, only: str | None, console: Console) -> list[Race]:
    races = []
    with EmbeddedPostgres(settings=SETTINGS) as source, EmbeddedPostgres(settings=SETTINGS) as target:
        if only in (None, "copy"):
            races.append(_copies(source, target, rows, repeat, console))
        if only in (None, "drain"):
            races += _drains(source, target, changes, repeat, console)
    return races


# ----------------------------------------------------------------------------------------------------------------- copy


def _copies(source: EmbeddedPostgres, target: EmbeddedPostgres, rows: int, repeat: int, console: Console) -> Race:
    url, race = source.create_database("copied"), Race("copy", rows)
    with console.status("making the table"):
        make_bench_table(url, rows)
    for number in range(repeat + 1):
        with console.status(f"copy, round {number}"):
            theirs = _by_psql(source, url, target.create_database(f"psql_{number}"), rows)
            ours = _by_walrelay(url, target.create_database(f"ours_{number}"), rows)
        if number:
            race.theirs.append(theirs)
            race.ours.append(ours)
    return race


def _by_psql(server: EmbeddedPostgres, url: str, target: str, rows: int) -> float:
    psql = [str(server.bin_dir / "psql"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname"]
    begun = time.perf_counter()
    with psycopg.connect(url) as source, psycopg.connect(target, autocommit=True) as connection:
        connection.execute(_without_key(source))
        sending = [*psql, url, "--command", "COPY bench TO STDOUT (FORMAT binary)"]
        taking = [*psql, target, "--command", "COPY bench FROM STDIN (FORMAT binary)"]
        with subprocess.Popen(sending, stdout=subprocess.PIPE) as sender:
            subprocess.run(taking, stdin=sender.stdout, check=True)
        connection.execute("SET maintenance_work_mem = '256MB'; ALTER TABLE bench ADD PRIMARY KEY (id)")
        seconds = time.perf_counter() - begun
        assert connection.execute("SELECT count(*) FROM bench").fetchone() == (rows,)
    return seconds


def _without_key(source: psycopg.Connection[Any]) -> bytes:
    found = source.execute(
        "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
        " FROM pg_attribute WHERE attrelid = 'bench'::regclass AND attnum > 0"
    ).fetchone()
    assert found is not None
    return f"CREATE TABLE bench ({found[0]})".encode()


def _by_walrelay(url: str, target: str, rows: int) -> float:
    spark = spark_session(None)
    begun = time.perf_counter()
    pipeline = Pipeline(PostgresSource(url, publication="bench"), PostgresDestination(target), mode="copy", spark=spark)
    assert pipeline.run().rows == rows
    seconds = time.perf_counter() - begun
    with psycopg.connect(target) as connection:
        assert connection.execute("SELECT count(*) FROM bench").fetchone() == (rows,)
    return seconds


# ---------------------------------------------------------------------------------------------------------------- drain


def _drains(
    source: EmbeddedPostgres, target: EmbeddedPostgres, changes: int, repeat: int, console: Console
) -> list[Race]:
    races = [Race("inserts", changes), Race("mixed", changes)]
    names = [f"{race.kind}_{number}" for race in races for number in range(repeat + 1)]
    url, theirs = source.create_database("drained"), target.create_database(THEIRS)
    with console.status("making the tables"):
        make_bench_table(url, changes)
    with (
        psycopg.connect(url, autocommit=True) as connection,
        psycopg.connect(theirs, autocommit=True) as subscriber,
    ):
        connection.execute("CREATE TABLE done (name text PRIMARY KEY)")
        for name in names:
            connection.execute(f"CREATE TABLE {name} (LIKE bench INCLUDING ALL)".encode())
        connection.execute(f"CREATE PUBLICATION backlog FOR TABLE {', '.join(names)}, done".encode())
        _subscribe(connection, subscriber, url, names)
        with running(url, "backlog", into=lambda _: PostgresDestination(target.create_database("ours"))) as (
            pipeline,
            _,
        ):
            ours_url = target.url.rpartition("/")[0] + "/ours"
            with psycopg.connect(ours_url, autocommit=True) as mine:
                _mark(connection, "warm")
                _wait_for(mine, "warm")
                for race in races:
                    for number in range(repeat + 1):
                        _one_round(connection, subscriber, mine, pipeline, race, number, console)
        subscriber.execute("DROP SUBSCRIPTION native")
    return races


def _subscribe(
    connection: psycopg.Connection[Any], subscriber: psycopg.Connection[Any], url: str, names: list[str]
) -> None:
    found = connection.execute(
        "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
        " FROM pg_attribute WHERE attrelid = 'bench'::regclass AND attnum > 0"
    ).fetchone()
    assert found is not None
    subscriber.execute("CREATE TABLE done (name text PRIMARY KEY)")
    for name in names:
        subscriber.execute(f"CREATE TABLE {name} ({found[0]}, PRIMARY KEY (id))".encode())
    subscriber.execute(
        f"CREATE SUBSCRIPTION native CONNECTION '{url}' PUBLICATION backlog WITH (copy_data = false)".encode()
    )
    _mark(connection, "subscribed")
    _wait_for(subscriber, "subscribed")
    subscriber.execute("ALTER SUBSCRIPTION native DISABLE")


def _one_round(
    connection: psycopg.Connection[Any],
    subscriber: psycopg.Connection[Any],
    mine: psycopg.Connection[Any],
    pipeline: Pipeline,
    race: Race,
    number: int,
    console: Console,
) -> None:
    table = f"{race.kind}_{number}"
    with console.status(f"{table}: making the backlog"):
        capture = status_of(pipeline).capture
        assert capture is not None
        os.kill(capture.pid, signal.SIGSTOP)
        statement = INSERTS if race.kind == "inserts" else MIXED
        connection.execute((statement % {"last": race.rows // 1000 - 1, "table": table}).encode())
        _mark(connection, table)
        connection.execute("CHECKPOINT")
        for one in (subscriber, mine):
            one.execute("CHECKPOINT")
    with console.status(f"{table}: draining by walrelay"):
        begun = time.monotonic()
        os.kill(capture.pid, signal.SIGCONT)
        _wait_for(mine, table)
        ours = time.monotonic() - begun
    with console.status(f"{table}: draining by the subscription"):
        begun = time.monotonic()
        subscriber.execute("ALTER SUBSCRIPTION native ENABLE")
        _wait_for(subscriber, table)
        theirs = time.monotonic() - begun
        subscriber.execute("ALTER SUBSCRIPTION native DISABLE")
    question = f"SELECT count(*), sum(hashtext(t::text)) FROM {table} t".encode()
    states = {one.execute(question).fetchone() for one in (connection, subscriber, mine)}
    assert len(states) == 1, states
    if number:
        race.ours.append(ours)
        race.theirs.append(theirs)


def _mark(connection: psycopg.Connection[Any], name: str) -> None:
    connection.execute("INSERT INTO done VALUES (%s)", (name,))


def _wait_for(connection: psycopg.Connection[Any], name: str) -> None:
    while not connection.execute("SELECT 1 FROM done WHERE name = %s", (name,)).fetchall():
        time.sleep(POLL_SECONDS)


# --------------------------------------------------------------------------------------------------------------- report


def races_as_json(races: list[Race]) -> dict[str, Any]:
    return {"machine": describe_machine(), "races": [{**asdict(one), "ratio": one.ratio} for one in races]}


def show_races(races: list[Race], console: Console) -> None:
    table = RichTable(title="Into another Postgres")
    for heading in ("what", "rows", "walrelay s", "Postgres's own s", "rows/s", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for race in races:
        median = statistics.median(race.ours)
        table.add_row(
            race.kind,
            f"{race.rows:,}",
            f"{median:.2f} ({min(race.ours):.2f}–{max(race.ours):.2f})",
            f"{statistics.median(race.theirs):.2f} ({min(race.theirs):.2f}–{max(race.theirs):.2f})",
            f"{race.rows / median:,.0f}",
            f"{race.ratio:.2f} (goal ≥ {GOALS[race.kind]})",
        )
    console.print(table)
