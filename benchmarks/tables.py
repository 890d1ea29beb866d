"""The tables that are copied, made by the server itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

BENCH_COLUMNS = 11
WIDE_COLUMNS = 5
WIDE_VALUE_BYTES = 1984
"""As much as fits into one piece of TOAST storage, so that the table on disk is hardly larger than its text."""
WIDE_ROW_BYTES = WIDE_COLUMNS * WIDE_VALUE_BYTES


@dataclass(frozen=True, slots=True)
class Table:
    """A published table, ready to be copied."""

    url: str
    name: str
    rows: int
    disk_bytes: int
    """With TOAST and without indexes."""

    @property
    def publication(self) -> str:
        return self.name


def make_bench_table(url: str, rows: int) -> Table:
    """Eleven columns of mixed types, about 160 bytes a row."""
    with psycopg.connect(url, autocommit=True) as connection:
        _run(connection, "bench_table")
        _run(connection, "bench_rows", rows=rows)
        return _settled(connection, url, "bench")


class WideTable:
    """A table of 10 kB rows that grows on demand."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._rows = 0
        with psycopg.connect(url, autocommit=True) as connection:
            _run(connection, "wide_table")

    def grow_to(self, size: int) -> Table:
        """Add rows until their text takes `size` bytes."""
        wanted = max(1, size // WIDE_ROW_BYTES)
        with psycopg.connect(self._url, autocommit=True) as connection:
            _run(connection, "wide_rows", first=self._rows + 1, last=wanted)
            self._rows = wanted
            return _settled(connection, self._url, "wide")

    def drop(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS wide, pool")
            connection.execute("CHECKPOINT")


def _settled(connection: psycopg.Connection[Any], url: str, name: str) -> Table:
    """The table once its housekeeping is done, so that nobody who reads it first has to do it."""
    table = sql.Identifier(name)
    connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(table))
    connection.execute("CHECKPOINT")
    found = connection.execute(
        sql.SQL("SELECT count(*), pg_table_size({}) FROM {}").format(sql.Literal(name), table)
    ).fetchone()
    assert found is not None
    return Table(url, name, rows=found[0], disk_bytes=found[1])


def _run(connection: psycopg.Connection[Any], name: str, **values: int) -> None:
    statement = (Path(__file__).parent / "sql" / f"{name}.sql").read_bytes()
    connection.execute(statement, values or None)
