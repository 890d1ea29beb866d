"""`verify` under load: how long it takes beside the source's own checksum, and that it never reports what is not."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console

from tests.integration.verify_kit import Followed
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import connect
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.verify.source_table import SIDE, published_rows

TABLE = """
CREATE TABLE t (
    id bigint PRIMARY KEY, customer int, name text, note text, price numeric(10, 2), moment timestamptz, day date,
    ratio float8, flag bool, token uuid
);
CREATE PUBLICATION p FOR TABLE t;
"""
FILL = """
INSERT INTO t SELECT i, i % 1000, 'name ' || i, repeat('x', i % 50), i * 0.01, now() + i * interval '1 s', current_date,
    i / 3.0, i % 2 = 0, gen_random_uuid() FROM generate_series(1, {rows}) AS i;
ANALYZE t;
"""
STEP = 50_000


def measure_verify(rows: int, runs: int, console: Console) -> bool:
    """Whether no run reported anything, and the planted differences were found and mended."""
    with EmbeddedPostgres(version=18) as server, tempfile.TemporaryDirectory() as directory:
        followed = Followed(server.create_database("verified"), Path(directory))
        followed.sql(TABLE)
        followed.follow()
        followed.sql(FILL.replace("{rows}", str(rows)))
        followed.follow()
        try:
            with followed.following(), _writing(followed.url, rows):
                ratios = [_run(followed, number, console) for number in range(1, runs + 1)]
            followed.follow()
            found = _planted(followed, rows, console)
        finally:
            followed.close()
    known = [one for one in ratios if one is not None]
    if known:
        console.print(
            f"{statistics.median(known):.2f} times the source's own checksum (median), {max(known):.2f} at most"
        )
    return found and len(known) == runs


def _run(followed: Followed, number: int, console: Console) -> float | None:
    own = _own_checksum(followed)
    result = followed.one("t")
    console.print(f"run {number}: {result.status} {result.reason or ''} {result.seconds:.1f} s, checksum {own:.1f} s")
    return result.seconds / own if result.status == "equal" else None


def _own_checksum(followed: Followed) -> float:
    with connect(followed.source) as connection:
        (table,) = published_tables(connection, "p")
        schema = read_schema(connection, table)
        question = sql.SQL("SELECT count(*), sum({}) FROM {}").format(
            SIDE.row_hash(schema.columns), published_rows(schema)
        )
        begun = time.monotonic()
        connection.execute(question).fetchall()
        return time.monotonic() - begun


def _planted(followed: Followed, rows: int, console: Console) -> bool:
    followed.in_copy(f"UPDATE public.t SET name = name || ' ' WHERE id % {STEP} = 7")
    wanted = len(range(7, rows + 1, STEP))
    found = followed.one("t")
    mended = followed.one("t", repair=True)
    console.print(f"planted {wanted}: {len(found.differences)} found, then {mended.status}, {mended.repaired} repaired")
    return len(found.differences) == wanted and mended.status == "equal"


@contextmanager
def _writing(url: str, rows: int) -> Iterator[None]:
    """A hot row, and others all over the table."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            number = 0
            while not stop.wait(0.005):
                number += 1
                connection.execute("UPDATE t SET price = price + 1 WHERE id = %s OR id = 1", (number * 37 % rows + 1,))

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
