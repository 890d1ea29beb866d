"""Copies a table with DuckDB's own Postgres extension and prints the seconds; runs in .venv-peers, by itself.

    python peer_duckdb.py URL TABLE FILE

The interpreter's start, the imports and the loading of the extension do not count: the others are warm, too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb
import duckdb_extension_postgres_scanner as wheel  # type: ignore[import-not-found]  # of .venv-peers


def extension() -> Path:
    """The extension's file in its wheel."""
    (found,) = Path(wheel.__path__[0]).rglob("postgres_scanner.duckdb_extension")
    return found


def copy(url: str, table: str, file: str) -> tuple[float, int]:
    """(seconds from opening the file to having it closed, rows in it)."""
    duckdb.connect().execute(f"LOAD '{extension()}'")
    begun = time.perf_counter()
    with duckdb.connect(file) as connection:
        connection.execute(f"LOAD '{extension()}'")
        connection.execute(f"ATTACH '{url}' AS source (TYPE postgres, READ_ONLY)")
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM source.public.{table}")
        connection.execute("DETACH source")
    seconds = time.perf_counter() - begun
    with duckdb.connect(file, read_only=True) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return seconds, int(found[0]) if found else 0


if __name__ == "__main__":
    seconds, rows = copy(*sys.argv[1:])
    print(json.dumps({"seconds": seconds, "rows": rows, "duckdb": duckdb.__version__}))
