"""Changes a table that keeps its size: `python -m benchmarks.steady_writer URL CHANGES_PER_SECOND ROWS`.

A transaction has 100 changes: 60 updates, 20 inserts at the end, 20 deletes at the beginning.
"""

from __future__ import annotations

import signal
import sys
import time

import psycopg

CHANGES = 100
STATEMENT = """
WITH gone AS (DELETE FROM steady WHERE id > %(first)s AND id <= %(first)s + 20),
     changed AS (
        UPDATE steady SET amount = amount + 1, at = clock_timestamp()
        WHERE id IN (SELECT %(first)s + 21 + (random() * (%(rows)s - 42))::bigint FROM generate_series(1, 60)))
INSERT INTO steady
SELECT g, g %% 1000, g * 0.01, 'note ' || md5(g::text), clock_timestamp()
FROM generate_series(%(first)s + %(rows)s + 1, %(first)s + %(rows)s + 20) g
"""


def main(url: str, rate: float, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        ((first,),) = connection.execute("SELECT min(id) - 1 FROM steady").fetchall()
        begun, count = time.monotonic(), 0
        while True:
            wait = begun + count * CHANGES / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            connection.execute(STATEMENT, {"first": first, "rows": rows}, prepare=True)
            first += 20
            count += 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
