"""Values that are large, and text of every character there is."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.roundtrip.copying import Copied, copy_table, started
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres

MEGABYTES_100 = 100 * 1024 * 1024
SURROGATES = range(0xD800, 0xE000)


def copied(url: str, table: str, path: Path) -> Copied:
    source = PostgresSource(url)
    with exported_snapshot(source, application="walrelay roundtrip") as snapshot:
        return copy_table(source, snapshot, table, started(path))


def test_text_and_bytes_of_100_mb_each_in_a_row_of_200_mb(database: str, tmp_path: Path) -> None:
    """Large rows and small ones stand before and behind: a huge one must not spoil its neighbours."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            """
            CREATE TABLE huge (id int4, words text, bytes bytea);
            -- Compressing takes longer than all the rest.
            ALTER TABLE huge ALTER words SET STORAGE EXTERNAL, ALTER bytes SET STORAGE EXTERNAL;
            """
        )
        connection.execute(
            """
            WITH long AS (
                -- 18 bytes at a time, in characters of one to four; 16 at a time.
                SELECT repeat('abcdéö漢字😀', %(size)s / 18 + 1) AS words,
                       decode(repeat(md5('bytes'), %(size)s / 16 + 1), 'hex') AS bytes
            )
            INSERT INTO huge
            SELECT 0, 'before', '\\x00'::bytea UNION ALL
            SELECT 1, left(words, 5000000), NULL FROM long UNION ALL
            SELECT 2, words, bytes FROM long UNION ALL
            SELECT 3, NULL, substr(bytes, 1, 5000000) FROM long UNION ALL
            SELECT 4, 'behind', '\\xff'::bytea
            """,
            {"size": MEGABYTES_100},
        )
        query = "SELECT id, octet_length(words), md5(words), octet_length(bytes), md5(bytes) FROM huge ORDER BY id"
        sent = connection.execute(query).fetchall()

    assert copied(database, "huge", tmp_path / "huge.duckdb").rows == 5
    with duckdb.connect(tmp_path / "huge.duckdb", read_only=True) as copies:
        held = copies.execute(
            "SELECT id, strlen(words), md5(words), octet_length(bytes), md5(bytes) FROM public.huge ORDER BY id"
        ).fetchall()
    assert held == sent
    assert min(held[2][1], held[2][3]) >= MEGABYTES_100


def test_numerics_of_thousands_of_digits(database: str, tmp_path: Path) -> None:
    chance = random.Random(1)

    def digits(count: int) -> str:
        return str(chance.randrange(1, 10)) + "".join(chance.choices("0123456789", k=count - 1))

    numbers = [
        *(digits(count) for count in range(995, 1005)),
        "-" + digits(1000),
        digits(1000) + "." + digits(1000),
        "0." + digits(16_383),
        "-0." + "0" * 16_382 + "7",
        digits(131_072) + "." + digits(16_383),
        "1" + "0" * 131_071,
        digits(1) + "." + "0" * 16_383,
    ]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE digits (id int4, value numeric)")
        with connection.cursor().copy("COPY digits FROM STDIN") as copy:
            for row in enumerate(numbers):
                copy.write_row(row)
        printed = connection.execute("SELECT value::text FROM digits ORDER BY id").fetchall()

    copied(database, "digits", tmp_path / "digits.duckdb")
    with duckdb.connect(tmp_path / "digits.duckdb", read_only=True) as copies:
        held = copies.execute("SELECT value FROM public.digits ORDER BY id").fetchall()
    assert held == printed == [(number,) for number in numbers]


@pytest.mark.parametrize("size", [16, 4096])
def test_every_character_of_unicode(size: int, database: str, tmp_path: Path) -> None:
    """All but U+0000, which Postgres refuses, and the surrogates, which are no characters; `size` of them a text."""
    everything = [chr(point) for point in range(1, sys.maxunicode + 1) if point not in SURROGATES]
    texts = ["".join(everything[begin : begin + size]) for begin in range(0, len(everything), size)]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE characters (id int4, value text)")
        with connection.cursor().copy("COPY characters FROM STDIN") as copy:
            for row in enumerate(texts):
                copy.write_row(row)
        query = "SELECT count(*), sum(octet_length(value)) FROM characters"
        stored = connection.execute(query).fetchone()

    assert copied(database, "characters", tmp_path / "characters.duckdb").rows == len(texts)
    with duckdb.connect(tmp_path / "characters.duckdb", read_only=True) as copies:
        held = copies.execute("SELECT value FROM public.characters ORDER BY id").fetchall()
        counted = copies.execute("SELECT count(*), sum(strlen(value)) FROM public.characters").fetchone()
    assert counted == stored
    assert [value for (value,) in held] == texts
