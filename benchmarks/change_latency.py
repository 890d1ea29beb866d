"""Latency of the change road: from a commit to its being readable in the log, at a steady rate."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from rich.console import Console

from walrelay.log.reader import LogReader
from walrelay.testing.postgres import EmbeddedPostgres

POLL_SECONDS = 0.002
GOAL_P50, GOAL_P99 = 0.100, 0.300


@dataclass(frozen=True)
class Latency:
    """Milliseconds, over all transactions."""

    rate: float
    transactions: int
    p50: float
    p99: float
    worst: float


def measure_latency(rate: int, seconds: float, console: Console) -> Latency:
    """A writer commits `rate` transactions a second; a reader polls the log."""
    with EmbeddedPostgres(durable=True) as server, tempfile.TemporaryDirectory() as directory:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE ticks (id bigserial PRIMARY KEY, note text)")
            connection.execute("CREATE PUBLICATION ticks FOR TABLE ticks")
            # The measured path is ours: the writer need not wait for the server's disk.
            connection.execute("ALTER DATABASE postgres SET synchronous_commit = on")
        log = Path(directory) / "log"
        child = _start_capture(server.url, log)
        try:
            stop = threading.Event()
            writers = [threading.Thread(target=_write, args=(server.url, rate / 4, seconds, stop)) for _ in range(4)]
            with console.status(f"{rate} transactions a second for {seconds:.0f} s"):
                for writer in writers:
                    writer.start()
                waits = _watch(log, writers)
            took = seconds
        finally:
            child.terminate()
            child.wait()
    found = np.array(waits)
    found = found[len(found) // 10 :]  # the first tenth warms up
    p50, p99 = (float(np.percentile(found, q)) for q in (50, 99))
    return Latency(len(waits) / took, len(waits), p50, p99, float(found.max()))


def _start_capture(url: str, log: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "walrelay.capture.child"], stdin=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None
    task = {"url": url, "publication": "ticks", "slot": "ticks", "log": str(log), "until": None, "settings": {}}
    child.stdin.write(json.dumps(task) + "\n")
    child.stdin.flush()
    while not (log / "log.json").exists():
        time.sleep(0.05)
    time.sleep(1.0)
    return child


def _write(url: str, rate: float, seconds: float, stop: threading.Event) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        begun = time.monotonic()
        count = 0
        while (now := time.monotonic()) - begun < seconds and not stop.is_set():
            due = begun + count / rate
            if due > now:
                time.sleep(due - now)
            connection.execute("INSERT INTO ticks (note) VALUES ('tick')")
            count += 1


def _watch(log: Path, writers: list[threading.Thread]) -> list[float]:
    """For each transaction how long after its commit it could be read. The server's clock is this machine's."""
    reader = LogReader(log)
    position = reader.end()
    waits: list[float] = []
    quiet = 0.0
    while any(writer.is_alive() for writer in writers) or quiet < 1.0:
        end = reader.end()
        if end <= position:
            time.sleep(POLL_SECONDS)
            quiet += POLL_SECONDS
            continue
        seen = time.time()
        quiet = 0.0
        for one in reader.batches(position, end):
            commits = one.batch.column("commit_time").cast("int64").to_numpy()
            waits.extend((seen - commits / 1e6).tolist())
        position = end
    return waits


def show_latency(found: Latency, console: Console) -> None:
    met = found.p50 <= GOAL_P50 and found.p99 <= GOAL_P99
    console.print(
        f"[{'green' if met else 'red'}]commit → readable in the log at {found.rate:.0f} transactions/s:"
        f" p50 {found.p50 * 1000:.0f} ms, p99 {found.p99 * 1000:.0f} ms, worst {found.worst * 1000:.0f} ms"
        f" (goal: p50 ≤ {GOAL_P50 * 1000:.0f}, p99 ≤ {GOAL_P99 * 1000:.0f})[/]"
    )
