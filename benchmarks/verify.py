"""`verify` under load: how long it takes beside the source's own checksum, and that it never reports what is not."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console

from tests.integration.verify_kit import Followed
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import connect
from walrelay.testing.background import in_background
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.verify.source_table import SIDE, published_rows

TABLE = """
CREATE TABLE t (
    id bigint PRIMARY KEY, customer int, name text, note text, price numeric(10, 2), exact numeric, moment timestamptz,
    day date, ratio float8, flag bool, token uuid, plain json, tags text[]
);
CREATE TABLE loose (n int, word text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE t, loose;
"""
FILL = """
INSERT INTO t SELECT i, i % 1000, 'name ' || i, repeat('x', i % 50), i * 0.01, '1.50', now() + i * interval '1 s',
    current_date, 0, i % 2 = 0, gen_random_uuid(), '{"a": 1}', '{a,NULL,""}' FROM generate_series(1, {rows}) AS i;
INSERT INTO loose SELECT i % 1000, 'word' FROM generate_series(1, 20000) AS i;
ANALYZE t;
"""
PLANTED = {
    "a missing row": "DELETE FROM public.t WHERE id = {id}",
    "a NULL": "name = NULL",
    "an empty text for a NULL's neighbour": "name = ''",
    "a trailing space": "name = name || ' '",
    "another case": "name = upper(name)",
    "one character more": "note = note || 'x'",
    "a cent": "price = price + 0.01",
    "a digit that says nothing": "exact = '1.5'",
    "a microsecond": "moment = moment + INTERVAL 1 MICROSECOND",
    "a microsecond less": "moment = moment - INTERVAL 1 MICROSECOND",
    "a day": "day = day + 1",
    "the least bit of a double": "ratio = 5e-324::DOUBLE",
    "a flag": "flag = NOT flag",
    "no flag": "flag = NULL",
    "another uuid": "token = '00000000-0000-4000-8000-000000000001'::UUID",
    "JSON with other white space": """plain = '{{"a":1}}'""",
    "elements that changed places": "tags = ['a', '', NULL]",
    "a list without its NULL": "tags = ['a', '']",
    "another customer": "customer = customer + 1",
}
"""What is done to one row each, in the destination alone."""


def measure_verify(rows: int, runs: int, console: Console) -> bool:
    """Whether no run reported anything, and everything planted was found, and mended, all of it under load."""
    with EmbeddedPostgres(version=18) as server, tempfile.TemporaryDirectory() as directory:
        followed = Followed(server.create_database("verified"), Path(directory))
        followed.sql(TABLE)
        followed.follow()
        followed.sql(FILL.replace("{rows}", str(rows)))
        followed.follow()
        try:
            with followed.following(), in_background(lambda stop: _write(followed.url, rows, stop), "writer"):
                ratios = [_run(followed, number, console) for number in range(1, runs + 1)]
            followed.follow()
            wanted = _plant(followed, rows)
            with followed.following(), in_background(lambda stop: _write(followed.url, rows, stop), "writer"):
                found = _look_for(followed, wanted, console)
        finally:
            followed.close()
    known = [one for one in ratios if one is not None]
    if known:
        console.print(
            f"{len(known)} of {runs} runs under load: equal; {statistics.median(known):.2f} times the source's own"
            f" checksum (median), {max(known):.2f} at most"
        )
    return found and len(known) == runs


def _run(followed: Followed, number: int, console: Console) -> float | None:
    own = _own_checksum(followed)
    result = followed.one("t")
    console.print(f"run {number}: {result.status} {result.reason or ''} {result.seconds:.1f} s, checksum {own:.1f} s")
    return result.seconds / own if result.status == "equal" else None


def _own_checksum(followed: Followed) -> float:
    with connect(followed.source) as connection:
        table = next(one for one in published_tables(connection, "p") if one.name.name == "t")
        schema = read_schema(connection, table)
        question = sql.SQL("SELECT count(*), sum({}) FROM {}").format(
            SIDE.row_hash(schema.columns), published_rows(schema)
        )
        begun = time.monotonic()
        connection.execute(question).fetchall()
        return time.monotonic() - begun


def _planted_ids(rows: int) -> list[int]:
    """Rows that nobody writes to: what changes them would mend them."""
    step = rows // (len(PLANTED) + 3)
    return [step * number + 7 for number in range(1, len(PLANTED) + 3)]


def _plant(followed: Followed, rows: int) -> set[str]:
    """One difference of each kind; their keys. -0 by a new table: DuckDB's UPDATE keeps what equals the new value."""
    ids = _planted_ids(rows)
    for key, template in zip(ids, PLANTED.values(), strict=False):
        deed = template.format(id=key)
        followed.in_copy(deed if deed.startswith("DELETE") else f"UPDATE public.t SET {deed} WHERE id = {key}")
    zero, extra = ids[-1], rows + 1
    changed = f"CASE WHEN id = {zero} THEN '-0'::DOUBLE ELSE ratio END AS ratio"
    followed.in_copy(
        f"CREATE OR REPLACE TABLE public.t AS SELECT * REPLACE ({changed}) FROM public.t",
        f"INSERT INTO public.t (id, name) VALUES ({extra}, 'extra')",
        "INSERT INTO public.loose VALUES (5, 'word')",
        "DELETE FROM public.loose WHERE rowid = (SELECT min(rowid) FROM public.loose WHERE n = 6)",
    )
    return {str(key) for key in (*ids[: len(PLANTED)], zero, extra)}


def _look_for(followed: Followed, wanted: set[str], console: Console) -> bool:
    loose, large = followed.verify().tables
    keys = {dict(one.key)["id"] for one in large.differences}
    console.print(
        f"planted under load: {len(keys)} of {len(wanted)} found in the large table"
        f" ({len(keys - wanted)} others reported), {len(loose.differences)} of 2 in the one without a key"
    )
    mended = followed.verify(repair=True)
    again = followed.verify()
    console.print(f"--repair: {sum(one.repaired for one in mended.tables)} rows brought; then {again.status}")
    return keys == wanted and len(loose.differences) == 2 and again.exit_code == 0


def _write(url: str, rows: int, stop: threading.Event) -> None:
    """A hot row, and others all over the table."""
    spared = set(_planted_ids(rows))
    with psycopg.connect(url, autocommit=True) as connection:
        number = 0
        while not stop.wait(0.005):
            number += 1
            key = number * 37 % rows + 1
            if key not in spared:
                connection.execute("UPDATE t SET price = price + 1 WHERE id = %s OR id = 1", (key,))
            if number % 10 == 0:
                connection.execute("INSERT INTO loose VALUES (1, 'more')")
                connection.execute("DELETE FROM loose WHERE word = 'more'")
