"""Proves a warehouse's destination on the real service: copy, changes, DDL, a crash, and `verify`.

A throwaway Postgres is the source. Nothing is compared but by `walrelay verify`, which reads the tables anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from walrelay.testing.postgres import EmbeddedPostgres

TABLES = """
CREATE TYPE pair AS (a int, b text);
CREATE TABLE walrelay_proof (id bigint PRIMARY KEY, body text, paid numeric(12, 2), wide numeric(38, 20), free numeric,
    x float8, day date, at timestamptz, local timestamp, raw bytea, tags int[], span int4range, both_parts pair,
    doc jsonb, ident uuid, clock time, took interval);
ALTER TABLE walrelay_proof ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE walrelay_proof_loose (n int, word text, x float8);
ALTER TABLE walrelay_proof_loose REPLICA IDENTITY FULL;
CREATE PUBLICATION proof FOR TABLE walrelay_proof, walrelay_proof_loose;
INSERT INTO walrelay_proof SELECT g, repeat(md5(g::text), 80), g / 7.0, g / 9.0, g * 1e30, 1.0 / g,
    date '2000-01-01' + g, timestamptz '2020-01-01 00:00Z' + g * interval '1 hour',
    timestamp '1970-01-01' + g * interval '1 day', decode(md5(g::text), 'hex'), ARRAY[g, g + 1], int4range(g, g + 5),
    (g, 'b' || g), jsonb_build_object('g', g), md5(g::text)::uuid, '12:34:56.789', g * interval '1 minute'
    FROM generate_series(1, 20000) g;
INSERT INTO walrelay_proof_loose SELECT g % 7, 'w', CASE g % 3 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE '1.5' END::float8
    FROM generate_series(1, 500) g;
"""
CHANGES = """
UPDATE walrelay_proof SET paid = paid + 1 WHERE id % 3 = {n};
UPDATE walrelay_proof SET id = id + {n} * 1000000 WHERE id % 100 = {n};
DELETE FROM walrelay_proof WHERE id % 13 = {n};
INSERT INTO walrelay_proof (id, body) SELECT -{n} * 1000 - g, 'new' FROM generate_series(1, 500) g;
DELETE FROM walrelay_proof_loose WHERE ctid IN (SELECT min(ctid) FROM walrelay_proof_loose GROUP BY n, x);
UPDATE walrelay_proof_loose SET word = word || '{n}' WHERE n = {n};
ALTER TABLE walrelay_proof ADD COLUMN more{n} int;
UPDATE walrelay_proof SET more{n} = 1 WHERE id % 50 = 0;
"""
PLACES = ("destination.staged", "destination.before_commit", "destination.committed", "destination.ddl")
CHILD = """
import sys
from walrelay.cli import main
from walrelay.failpoints import arm
arm(sys.argv.pop(1))
main()
"""


def prove(destination: str) -> int:
    """0 when everything was equal."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres() as server:
        source = server.create_database("proof")
        state = Path(directory) / "state"
        common = [source, destination, "--publication", "proof", "--state", str(state)]
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(TABLES)
            step("copying 20 500 rows", ["replicate", *common, "--until", "caught-up"])
            for number, place in enumerate(PLACES, 1):
                connection.execute(CHANGES.format(n=number).encode())
                step(f"killed at {place}", ["replicate", *common, "--until", "caught-up"], f"{place}=kill")
                step("caught up afterwards", ["replicate", *common, "--until", "caught-up"])
            return step("verified", ["verify", *common])


def step(said: str, arguments: list[str], kill: str = "") -> int:
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CHILD, kill, *arguments], env=os.environ, check=False)
    expected = -signal.SIGKILL if kill else 0
    print(
        f"{said}: {'as it should' if done.returncode == expected else f'FAILED ({done.returncode})'},"
        f" {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    if done.returncode != expected:
        sys.exit(1)
    return done.returncode
