"""Options of tables, on both roads, in a pipeline that runs: what the destination holds is what they make of the
source's rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.spark.live_kit import Live
from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.destinations.base import WriteResult
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.errors import ConfigError
from walrelay.model.schema import TableSchema
from walrelay.model.table_options import Hash, KeepLast, Rename, TableOptions, WithConstant, WithNull
from walrelay.shaping.failures import TableOptionError
from walrelay.workers.status import PipelineStatus

CUSTOMERS = """
CREATE TABLE customers (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, email text, card text, born date, score numeric(8,2),
    secret text, seen_at timestamptz);
CREATE TABLE plain (id int PRIMARY KEY, a text);
CREATE TABLE audit_log (id int PRIMARY KEY, a text);
CREATE PUBLICATION p FOR TABLE customers, plain, audit_log;
INSERT INTO customers (name, email, card, born, score, secret, seen_at)
    SELECT 'n' || g, 'mail' || g || '@example.com', '4000' || g, '2000-01-01'::date + g, g * 1.25, 'hush' || g,
        timestamptz '2020-01-01' + g * interval '1 hour' FROM generate_series(1, 50) g;
INSERT INTO plain SELECT g, 'a' || g FROM generate_series(1, 10) g;
INSERT INTO audit_log VALUES (1, 'x');
"""
CHANGES = """
UPDATE customers SET email = 'new' || email, card = NULL WHERE name LIKE '%3';
DELETE FROM customers WHERE name LIKE '%4';
INSERT INTO customers (name, email, card, born, score, secret) VALUES ('é', NULL, '77', NULL, NULL, 'hush');
UPDATE customers SET id = gen_random_uuid() WHERE name LIKE '%5';
UPDATE plain SET a = a || '!';
INSERT INTO audit_log VALUES (2, 'y');
"""
OPTIONS = {
    "customers": TableOptions(
        rename=Rename(schema="raw", table="{schema}_{table}", columns={"name": "full_name"}),
        leave_out=("secret",),
        hash=Hash(("id", "email", "born", "score", "seen_at"), salt="pepper"),
        mask={"card": KeepLast(2)},
    ),
    "audit_*": TableOptions(include=False),
}


CLEAR = (b"hush", b"@example.com")
"""Parts of values that are to be hidden."""


class Scanning(DuckDBDestination):
    """Looks into every file that it is given, and into all others in staging."""

    scanned = 0

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        self._scan([Path(path) for path in rows.paths()])
        return super().write_table_rows(schema, rows)

    def write_events(self, batch: EventBatch) -> WriteResult:
        root = Path(batch.location)
        if any(part.schema.name.schema == "raw" for part in batch.tables()):
            self._scan([file for file in root.parent.rglob("*") if file.is_file()])
        return super().write_events(batch)

    def _scan(self, files: list[Path]) -> None:
        for file in files:
            body = file.read_bytes()
            assert not any(clear in body for clear in CLEAR), file
            self.scanned += 1


def rows_in(file: Path, question: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(question).fetchall()


def customers_by_hand(live: Live) -> set[tuple[Any, ...]]:
    def digest(value: str | None) -> str | None:
        return None if value is None else hashlib.sha256(f"pepper{value}".encode()).hexdigest()

    def last(value: str | None) -> str | None:
        return None if value is None else "*" * len(value) if len(value) <= 2 else "*" * (len(value) - 2) + value[-2:]

    with psycopg.connect(live.url, options="-c timezone=UTC") as connection:
        found = connection.execute(
            "SELECT id::text, name, email, card, born::text, score::text, seen_at::text FROM customers"
        ).fetchall()
    return {(digest(i), n, digest(e), last(c), digest(b), digest(s), digest(a)) for i, n, e, c, b, s, a in found}


def test_renamed_narrowed_hashed_and_masked_on_both_roads(live: Live, tmp_path: Path) -> None:
    live.sql(*CUSTOMERS.strip().split(";\n"))
    destination = Scanning(live.file)
    with live.running(destination, tables=OPTIONS) as pipeline:
        live.wait_ready(pipeline)
        copied = destination.scanned
        assert copied
        question = "SELECT id, full_name, email, card, born, score, seen_at FROM raw.public_customers"
        assert set(rows_in(live.file, question)) == customers_by_hand(live)
        live.sql(*CHANGES.strip().split(";\n"))
        live.wait_current(pipeline)
        assert set(rows_in(live.file, question)) == customers_by_hand(live)
        live.sql("ALTER TABLE customers ADD COLUMN note text", "UPDATE customers SET note = 'since'")
        live.wait_current(pipeline)
        assert rows_in(live.file, "SELECT DISTINCT note FROM raw.public_customers") == [("since",)]
        assert set(rows_in(live.file, question)) == customers_by_hand(live)
    tables = rows_in(live.file, "SELECT schema_name, table_name FROM duckdb_tables() WHERE schema_name <> '_walrelay'")
    assert set(tables) == {("raw", "public_customers"), ("public", "plain")}
    columns = {row[0] for row in rows_in(live.file, "DESCRIBE raw.public_customers")}
    assert columns == {"id", "full_name", "email", "card", "born", "score", "seen_at", "note"}
    assert destination.scanned > copied
    assert not any(clear in live.file.read_bytes() for clear in CLEAR)
    # The log has them, as the page says.
    logged = b"".join(file.read_bytes() for file in live.log.rglob("*.parquet"))
    assert all(clear in logged for clear in CLEAR)
    assert len(rows_in(live.file, "SELECT * FROM public.plain WHERE a LIKE '%!'")) == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TableOptions(columns=("name",)), "the key needs the column id"),
        (TableOptions(leave_out=("id",)), "the key needs the column id"),
        (TableOptions(hash=Hash(("emial",))), "the table has no column emial"),
        (TableOptions(mask={"id": WithConstant("x")}), "id belongs to the key"),
        (TableOptions(mask={"id": WithNull()}), "id belongs to the key"),
        (TableOptions(mask={"score": KeepLast(2)}), "of text alone the last characters stay"),
        (TableOptions(rename=Rename(columns={"name": "email"})), "two columns would be called email"),
        (TableOptions(rename=Rename(schema="public", table="plain")), "would be called public.plain"),
        (TableOptions(history="scd2"), "scd2 is not there"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_before_anything_is_made(
    live: Live, options: TableOptions, said: str
) -> None:
    live.sql(*CUSTOMERS.strip().split(";\n"))
    with pytest.raises(TableOptionError, match=said):
        live.pipeline(tables={"customers": options}).run(until="caught-up")
    assert not live.file.exists()
    with psycopg.connect(live.url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)


def test_a_pattern_that_is_none_is_refused(live: Live) -> None:
    with pytest.raises(ConfigError, match="not a table"):
        live.pipeline(tables={"a.b.c": TableOptions()})


PUT_ASIDE = """
CREATE TABLE kept (id int PRIMARY KEY, a text);
CREATE TABLE fixed (id int PRIMARY KEY, a text);
CREATE TABLE again (id int PRIMARY KEY, a text);
CREATE TABLE named (id int PRIMARY KEY, a text);
CREATE TABLE other (id int PRIMARY KEY, a text);
CREATE PUBLICATION p FOR TABLE kept, fixed, again, named, other;
INSERT INTO kept VALUES (1, 'x');
INSERT INTO fixed VALUES (1, 'x');
INSERT INTO again VALUES (1, 'x');
INSERT INTO named VALUES (1, 'secret of mine');
"""
ASIDE = {
    "kept": TableOptions(soft_deletes=True),
    "fixed": TableOptions(on_schema_change="error"),
    "again": TableOptions(on_schema_change="copy"),
    "named": TableOptions(hash=Hash(("a",), salt="s")),
}


def test_tables_that_are_put_aside_come_back_by_their_hints(live: Live) -> None:
    live.sql(*PUT_ASIDE.strip().split(";\n"))
    wrong = {**ASIDE, "other": TableOptions(leave_out=("id",))}
    with pytest.raises(TableOptionError) as refused:
        live.pipeline(tables=wrong).run(until="caught-up")
    assert refused.value.hint == "Let id arrive; hash it to hide it."
    options = {**ASIDE, "other": TableOptions(hash=Hash(("id",)))}
    with live.running(tables=options) as pipeline:
        live.wait_ready(pipeline)
        live.sql(
            "TRUNCATE kept",
            "ALTER TABLE fixed ADD COLUMN b int",
            "INSERT INTO fixed VALUES (2, 'y', 3)",
            "ALTER TABLE again ADD COLUMN b int",
            "INSERT INTO again VALUES (2, 'y', 3)",
            "ALTER TABLE named RENAME TO renamed",
            "INSERT INTO renamed VALUES (2, 'secret too')",
            "INSERT INTO other VALUES (1, 'z')",
        )

        def aside(status: PipelineStatus) -> bool:
            return sum(one.phase == "errored" for one in status.tables) == 3

        live.wait(pipeline, aside, "three tables are put aside")
        live.wait_current(pipeline, "public.other", "public.again")
        found = {report.error.code: report.error for report in live.heard.failed if report.error is not None}
        assert set(found) == {"table.truncated", "table.schema_changed"} | ({"table.options_lost"} & set(found))
        assert "`walrelay resync` copies the table again" in found["table.truncated"].hint
        assert "`walrelay resync` copies the table again" in found["table.schema_changed"].hint
        pipeline.resync("kept", "fixed")
        live.wait_current(pipeline, "public.kept", "public.fixed")
        assert rows_in(live.file, "SELECT count(*) FROM public.kept") == [(0,)]
        assert sorted(rows_in(live.file, "SELECT id, b FROM public.fixed")) == [(1, None), (2, 3)]
        assert sorted(rows_in(live.file, "SELECT id, b FROM public.again")) == [(1, None), (2, 3)]
        assert live.heard.started.count("public.again") == 2
        (lost,) = [one for one in pipeline.status().tables if one.phase == "errored"]
        assert "is called public.renamed now" in (lost.reason or "")
        assert "Give the table's new name" in (lost.solution or "")
    with live.running(tables={**options, "renamed": ASIDE["named"]}) as pipeline:
        live.wait_current(pipeline)
    assert b"secret" not in live.file.read_bytes()
    assert rows_in(live.file, "SELECT count(*) FROM public.renamed") == [(2,)]


def test_other_options_have_the_table_copied_again(live: Live) -> None:
    live.sql(*PUT_ASIDE.strip().split(";\n"))
    for options, columns in (
        ({"named": TableOptions(columns=("id",))}, ["id"]),
        ({"named": TableOptions(rename=Rename(columns={"a": "b"}))}, ["id", "b"]),
        ({"named": TableOptions(rename=Rename(columns={"a": "b"}))}, ["id", "b"]),
        (None, ["id", "a"]),
    ):
        live.pipeline(tables=options).run(until="caught-up")
        assert [row[0] for row in rows_in(live.file, "DESCRIBE public.named")] == columns
        assert rows_in(live.file, "SELECT * FROM public.named") == [(1, "secret of mine")[: len(columns)]]
        if columns[-1] == "b":
            copied = live.heard.started
    assert copied == []
    assert live.heard.started == ["public.named"]
    report = live.pipeline().verify()
    assert report.status == "equal"


def test_verify_does_not_take_a_shaped_table_for_a_different_one_nor_repair_it(live: Live) -> None:
    live.sql(*PUT_ASIDE.strip().split(";\n"))
    pipeline = live.pipeline(tables=ASIDE)
    pipeline.run(until="caught-up")
    report = pipeline.verify(repair=True)
    told = {str(one.name): (one.status, one.reason) for one in report.tables}
    assert told["public.other"][0] == "equal"
    status, reason = told["public.named"]
    assert status == "unknown"
    assert "could not be compared: by its options (hash)" in (reason or "")
    assert report.status == "unknown"
    assert b"secret of mine" not in live.file.read_bytes()
