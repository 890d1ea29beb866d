"""Polls a DuckDB file from a process of its own, as a user would: `python -m benchmarks.duckdb_reader FILE SECONDS`.

Prints, as JSON, how many seconds after its insertion each row of `ticks` was first seen.
"""

from __future__ import annotations

import json
import sys
import time

import duckdb

POLL_SECONDS = 0.02


def main(path: str, seconds: float) -> None:
    waits: list[float] = []
    last, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        time.sleep(POLL_SECONDS)
        try:
            with duckdb.connect(path, read_only=True) as reader:
                found = reader.execute('SELECT id, epoch_us("at") FROM public.ticks WHERE id > ?', [last]).fetchall()
        except duckdb.IOException:
            continue  # it is being written to
        seen = time.time()
        if found:
            last = max(number for number, _ in found)
            waits += [seen - at / 1e6 for _, at in found]
    json.dump(waits, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
