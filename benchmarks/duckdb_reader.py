"""Polls a DuckDB file from a process of its own, as a user would: `python -m benchmarks.duckdb_reader FILE SECONDS`.

Prints, as JSON, for each row of `ticks` when it was first seen, and how many seconds that was after its insertion. A
file named by a third argument ends it early.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb

POLL_SECONDS = 0.02


def main(path: str, seconds: float, until: Path | None = None) -> None:
    sightings: list[tuple[float, float]] = []
    last, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds and not (until and until.exists()):
        time.sleep(POLL_SECONDS)
        try:
            with duckdb.connect(path, read_only=True) as reader:
                found = reader.execute('SELECT id, epoch_us("at") FROM public.ticks WHERE id > ?', [last]).fetchall()
        except duckdb.IOException:
            continue  # it is being written to
        seen = time.time()
        if found:
            last = max(number for number, _ in found)
            sightings += [(seen, seen - at / 1e6) for _, at in found]
    json.dump(sightings, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
