"""`verify` finds every difference by its key, none where there is none, also under load, and mends what it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.integration.verify_kit import Followed
from walrelay.config.settings import copy_settings
from walrelay.destinations.null import NullDestination
from walrelay.errors import NotVerifiableError, OtherDestinationError
from walrelay.log.reader import LogReader
from walrelay.model.phases import Errored, Init, NoRetry
from walrelay.postgres.connection import connect
from walrelay.postgres.slot import flushed_lsn, inserted_lsn
from walrelay.testing.workload import Workload
from walrelay.verify.coverage import log_reaches
from walrelay.verify.run import VerifyParts, verify

pytestmark = pytest.mark.postgres

TABLES = """
CREATE TABLE things (
    id int PRIMARY KEY, name text, code char(4), price numeric(8, 2), exact numeric, moment timestamptz,
    local timestamp, day date, ratio double precision, part real, took interval, tags text[], grid int[][], plain json,
    binary_json jsonb, raw bytea, token uuid, flag boolean, large bigint, clock time
);
CREATE TABLE loose (a int, b text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE pairs (a int, b text, v text, PRIMARY KEY (a, b));
CREATE TABLE tokens (id uuid PRIMARY KEY, v int);
CREATE TABLE words (word text PRIMARY KEY, v int);
CREATE TABLE empty (id int PRIMARY KEY);
CREATE TABLE bare ();
CREATE PUBLICATION p FOR TABLE things, loose, pairs, tokens, words, empty, bare;
"""
ROWS = """
INSERT INTO things SELECT i, 'name ' || i, 'ab', i + 0.25, '1.50', '2024-02-29 12:00:00.25+02', '2024-02-29 12:00:00',
    '2024-02-29', 0, 0.5, '1 mon -2 days 03:00:00.5', '{a,NULL,""}', '{{1,2},{3,4}}', '{"a": 1}', '{"a": 1}',
    '\\x00ff', '00000000-0000-4000-8000-000000000000', true, 9007199254740993, '12:00:00.000001'
    FROM generate_series(1, 300) AS i;
INSERT INTO loose SELECT i / 2, 'row' FROM generate_series(1, 100) AS i;
INSERT INTO pairs SELECT i % 7, 'p' || i, 'v' FROM generate_series(1, 100) AS i;
INSERT INTO tokens SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, i
    FROM generate_series(1, 50) AS i;
INSERT INTO words VALUES ('a', 1), ('A', 2), ('ä', 3), ('', 4), ('a ', 5), ('é', 6);
INSERT INTO bare DEFAULT VALUES;
"""
PLANTED = [
    ("name", "NULL"),
    ("name", "''"),
    ("name", "name || ' '"),
    ("name", "upper(name)"),
    ("code", "'ab'"),
    ("price", "price + 0.01"),
    ("exact", "'1.5'"),
    ("moment", "moment + INTERVAL 1 MICROSECOND"),
    ("local", "local - INTERVAL 1 MICROSECOND"),
    ("day", "day + 1"),
    ("ratio", "'-0'::DOUBLE"),
    ("part", "0.50000006::FLOAT"),
    ("took", "INTERVAL '28 days 03:00:00.5'"),
    ("tags", "['a', '', NULL]"),
    ("grid", "[[1, 2], [3, 5]]"),
    ("plain", """'{"a":1}'"""),
    ("binary_json", """'{"a": 1.0}'"""),
    ("raw", "'\\x00\\xFE'::BLOB"),
    ("token", "'00000000-0000-4000-8000-000000000001'::UUID"),
    ("flag", "NULL"),
    ("large", "9007199254740992"),
    ("clock", "TIME '12:00:00'"),
]
"""Each in a row of its own: the first in row 1, and so on."""


@pytest.fixture
def followed(database: str, tmp_path: Path) -> Iterator[Followed]:
    made = Followed(database, tmp_path)
    made.sql(TABLES)
    made.follow()
    made.sql(ROWS)
    made.follow()
    yield made
    made.close()


def plant(followed: Followed) -> None:
    """By new tables: DuckDB's UPDATE keeps a value that equals the new one, as -0 does 0."""
    for row, (column, value) in enumerate(PLANTED, start=1):
        changed = f"CASE WHEN id = {row} THEN {value} ELSE {column} END AS {column}"
        followed.in_copy(f"CREATE OR REPLACE TABLE public.things AS SELECT * REPLACE ({changed}) FROM public.things")
    followed.in_copy(
        "DELETE FROM public.things WHERE id = 200",
        "INSERT INTO public.things (id, name) VALUES (1000, 'extra')",
        "INSERT INTO public.loose VALUES (10, 'row')",
        "DELETE FROM public.loose WHERE rowid = (SELECT min(rowid) FROM public.loose WHERE a = 20)",
        "UPDATE public.pairs SET v = 'w' WHERE a = 3 AND b = 'p3'",
        "DELETE FROM public.tokens WHERE v = 7",
        "UPDATE public.words SET v = 0 WHERE word = 'A'",
        "INSERT INTO public.bare VALUES (NULL)",
    )


def contents(followed: Followed) -> dict[str, Counter[str]]:
    """What the file holds, as the client library gives it."""
    with duckdb.connect(str(followed.file), read_only=True) as connection:
        tables = ("things", "loose", "pairs", "tokens", "words", "empty", "bare")
        return {name: Counter(map(repr, connection.execute(f"FROM public.{name}").fetchall())) for name in tables}


def walrelay_verify(followed: Followed, *more: str) -> tuple[int, str]:
    """The command: its exit code and what it said."""
    command = [str(Path(sys.executable).parent / "walrelay"), "verify", followed.url, f"duckdb:///{followed.file}"]
    done = subprocess.run(
        [*command, "--publication", "p", "--state", str(followed.state), *more],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_nothing_is_reported_where_nothing_differs(followed: Followed) -> None:
    report = followed.verify()
    assert report.exit_code == 0, report.to_json()
    assert {str(one.name): one.rows for one in report.tables} == {
        "public.bare": 1,
        "public.empty": 0,
        "public.loose": 100,
        "public.pairs": 100,
        "public.things": 300,
        "public.tokens": 50,
        "public.words": 6,
    }


def test_others_who_look_at_the_slot_are_waited_for(followed: Followed) -> None:
    """WAL goes on without changes of ours, so that the slot is asked; meanwhile it is taken, again and again."""
    peek = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
    stopping = threading.Event()

    def look() -> None:
        with psycopg.connect(followed.url, autocommit=True) as connection:
            while not stopping.wait(0.01):
                with suppress(psycopg.errors.ObjectInUse):
                    connection.execute(f"{peek} 'publication_names', 'p')", (followed.slot,))  # type: ignore[call-overload]

    followed.sql("SELECT pg_logical_emit_message(false, 'other', repeat('x', 1000)) FROM generate_series(1, 5000)")
    plant(followed)
    others = [threading.Thread(target=look)]
    for one in others:
        one.start()
    try:
        mended = followed.verify(repair=True)
    finally:
        stopping.set()
        for one in others:
            one.join()
    assert mended.exit_code == 0, mended.to_json()


def test_every_planted_difference_is_found_by_its_key_and_mended(followed: Followed) -> None:
    before = contents(followed)
    plant(followed)
    assert contents(followed) != before
    report = followed.verify()
    assert report.exit_code == 1
    found = {str(one.name): one for one in report.tables}
    things = {int(one.key["id"] or 0): (one.kind, one.columns) for one in found["public.things"].differences}
    wanted = {row: ("changed", (column,)) for row, (column, _) in enumerate(PLANTED, start=1)}
    assert things == {**wanted, 200: ("missing", ()), 1000: ("extra", ())}
    others = {name: [str(row) for row in one.differences] for name, one in found.items() if name != "public.things"}
    assert others.pop("public.bare") == ["row #000000000000000 is too many: 1 in the source, 2 in the destination"]
    loose = {(one.kind, one.source_rows, one.destination_rows) for one in found["public.loose"].differences}
    assert others.pop("public.loose") and loose == {("extra", 2, 3), ("missing", 2, 1)}
    assert others == {
        "public.empty": [],
        "public.pairs": ["(a = 3, b = p3) differs in v"],
        "public.tokens": ["(id = 00000000-0000-4000-8000-000000000007) is missing"],
        "public.words": ["(word = A) differs in v"],
    }
    assert "extra" not in report.to_json().replace('"kind": "extra"', ""), "values only when asked for"
    assert "extra" in report.to_json(show_values=True)

    mended = followed.verify(repair=True)
    assert mended.exit_code == 0, mended.to_json()
    assert sum(one.repaired for one in mended.tables) == len(PLANTED) + 2 + 1 + 2 + 1 + 1 + 1
    assert followed.verify().exit_code == 0
    assert contents(followed) == before, "by DuckDB's own word"


DIFFERENT = 1


def test_nothing_is_reported_under_load(database: str, tmp_path: Path) -> None:
    """A wild workload: hot rows, key changes, truncates, TOAST, large transactions, tables without a key."""
    workload = Workload(database, seed=5, clients=1, large_rows=2_000)
    followed = Followed(database, tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        workload.create(connection)
    followed.follow()
    try:
        with followed.following():
            with workload.running():
                report = followed.verify("items", "loose", "pairs", "accounts_a")
                # A row that is written all the time may stay unknown on a busy machine; it is never said to differ.
                assert report.exit_code != DIFFERENT, report.to_json()
                # As a user would, from another process.
                code, said = walrelay_verify(followed, "--table", "items", "--table", "ledger")
                assert code != DIFFERENT, said
            followed.wait_current()
            report = followed.verify()
            assert report.exit_code == 0, report.to_json()
            assert sum(one.rows for one in report.tables) > 100
    finally:
        followed.close()


def test_row_that_is_wrong_while_the_source_goes_on_is_found_and_mended_by_the_command(followed: Followed) -> None:
    """Hot rows beside it, a destination that lags, another process that writes to the file."""
    followed.in_copy("UPDATE public.things SET name = 'precious' WHERE id = 77")
    followed.in_copy("INSERT INTO public.loose VALUES (77, 'precious')")
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(followed.url, autocommit=True) as connection:
            while not stop.wait(0.01):
                connection.execute("UPDATE things SET price = price + 1 WHERE id <= 20")
                connection.execute("INSERT INTO loose VALUES (1, 'more'); DELETE FROM loose WHERE b = 'more'")

    with followed.following():
        writer = threading.Thread(target=write)
        writer.start()
        try:
            tables = ("--table", "things", "--table", "loose", "--table", "pairs")
            code, said = walrelay_verify(followed, "--json", *tables)
            assert code == 1, said
            assert "precious" not in said
            found = {one["table"]: one for one in json.loads(said)["tables"]}
            assert [one["key"] for one in found["public.things"]["differences"]] == [{"id": "77"}]
            assert [one["kind"] for one in found["public.loose"]["differences"]] == ["extra"]
            assert found["public.pairs"]["status"] == "equal"
            code, said = walrelay_verify(followed, "--repair", "--show-values", *tables)
            assert code != DIFFERENT, said
            assert "(id = 77) differs in name" in said and "destination: name = 'precious'" in said
        finally:
            stop.set()
            writer.join()
        # What comes afterwards finds the rows as it must.
        followed.sql("UPDATE things SET price = 1 WHERE id = 77", "DELETE FROM loose WHERE a = 5")
        followed.wait_current()
        report = followed.verify()
        assert report.exit_code == 0, report.to_json()
    assert contents(followed)["things"].total() == 300


def test_what_cannot_be_compared_is_said_with_its_reason(followed: Followed) -> None:
    followed.mark(Errored("no right to read it", None, NoRetry()))
    report = followed.verify("things")
    assert (report.exit_code, report.tables[0].reason) == (2, "it is in error: no right to read it")
    followed.mark(Init())
    code, said = walrelay_verify(followed, "--table", "things")
    assert code == 2 and "could not compare · its copy has not caught up yet" in said, said
    followed.mark()
    code, said = walrelay_verify(followed, "--table", "nowhere")
    assert code == 2 and "(source.no_such_table)" in said and "what to do" in said, said
    parts = VerifyParts("p", followed.source, NullDestination(), followed.store, followed.log, copy_settings())
    with pytest.raises(NotVerifiableError):
        verify(parts)
    followed.in_copy("DROP TABLE public.words")
    words = followed.one("words", patience=1)
    assert words.status == "different" and "has lost it" in (words.reason or "")
    followed.store.store_fact(0, "destination", {"id": "another", "place": "elsewhere"})
    with pytest.raises(OtherDestinationError):
        followed.verify()


def test_rows_that_the_log_does_not_have_yet_are_no_differences(followed: Followed) -> None:
    """Nobody runs the pipeline: what differs may be on its way. Once it is applied, it is told."""
    followed.in_copy("DELETE FROM public.things WHERE id = 9")
    assert followed.one("things").status == "different", "nothing waits in the slot"
    followed.sql("UPDATE things SET name = 'new' WHERE id = 5; INSERT INTO loose VALUES (0, 'new')")
    things, loose = followed.verify("things", "loose", patience=1).tables
    assert (things.status, loose.status) == ("unknown", "unknown")
    assert "run the pipeline" in (things.reason or "")
    assert followed.one("things", repair=True, patience=1).repaired == 0
    followed.follow()
    assert [dict(one.key) for one in followed.one("things").differences] == [{"id": "9"}]
    assert followed.one("loose").status == "equal"


def test_pipeline_that_runs_but_does_not_read_its_slot_yet_is_waited_for(followed: Followed) -> None:
    """Capture takes a moment to come up, and comes back after a lost connection: nobody reads the slot meanwhile."""
    followed.sql("UPDATE things SET name = 'new' WHERE id = 5")
    with connect(followed.source) as connection:
        end = flushed_lsn(connection)

    def is_coming_up() -> bool:
        followed.follow()
        return True

    log = LogReader(followed.log)
    assert not log_reaches(log, followed.source, end, 120, is_running=lambda: False)
    assert log_reaches(log, followed.source, end, 120, is_running=is_coming_up)


def test_commit_that_is_not_flushed_yet_is_not_taken_for_nothing(followed: Followed) -> None:
    """With synchronous_commit off a snapshot sees what the slot cannot show yet."""
    followed.sql("ALTER SYSTEM SET wal_writer_delay = '3s'", "SELECT pg_reload_conf()")
    try:
        followed.sql(
            "SELECT pg_sleep(0.2)", "SET synchronous_commit = off; UPDATE things SET name = 'new' WHERE id = 5"
        )
        with connect(followed.source) as connection:
            end = inserted_lsn(connection)
        assert not log_reaches(LogReader(followed.log), followed.source, end, 120, is_running=lambda: False)
    finally:
        followed.sql("ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()")


def test_rows_that_are_in_the_log_and_not_applied_are_left_for_later(followed: Followed) -> None:
    followed.in_copy("DELETE FROM public.things WHERE id = 9")
    with followed.following():
        followed.paused.set()
        followed.sql("UPDATE things SET name = 'new' WHERE id = 5; INSERT INTO loose VALUES (0, 'new')")
        things = followed.one("things", patience=0.5)
        assert [dict(one.key) for one in things.differences] == [{"id": "9"}]
        assert things.reason == "1 rows changed too often, or are not in the destination yet"
        assert followed.one("loose", patience=0.5).status == "equal", "the log accounts for it"
        followed.paused.clear()
        followed.wait_current()
        things = followed.one("things", repair=True)
        assert (things.status, things.repaired) == ("equal", 1)


def test_renamed_columns_treated_values_and_filters_are_no_differences(followed: Followed) -> None:
    followed.sql(
        "ALTER TABLE pairs RENAME COLUMN v TO renamed",
        "UPDATE pairs SET renamed = 'x' WHERE a = 1",
        "UPDATE things SET price = 'NaN' WHERE id = 1",
        "UPDATE things SET took = 'infinity', moment = 'infinity', grid = '{1,2}' WHERE id = 2",
        "UPDATE things SET local = '294276-01-01' WHERE id = 3",
    )
    followed.follow()
    followed.sql("ALTER TABLE words RENAME COLUMN v TO w")
    report = followed.verify("pairs", "things", "words")
    assert report.exit_code == 0, report.to_json()
    assert [one.treated_rows for one in report.tables] == [0, 3, 0]
    followed.in_copy("UPDATE public.words SET v = 9 WHERE word = 'a'")
    assert [str(one) for one in followed.one("words", repair=True).differences] == ["(word = a) differs in w"]
    assert followed.one("words").status == "equal"
