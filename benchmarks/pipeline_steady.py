"""A pipeline for a long while, at half of its maximal rate or a given one: lag, memory and files must not grow."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from rich.console import Console

from benchmarks.lake_spark import lake_needs
from benchmarks.pipeline_run import running, status_of
from benchmarks.sampling import roles_below
from walrelay import DeltaDestination, DuckDBDestination, IcebergDestination
from walrelay.config.settings import capture_settings, copy_settings
from walrelay.destinations.base import Destination
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.pipeline import Pipeline
from walrelay.spark.needs import settings_for
from walrelay.spark.session import spark_session
from walrelay.testing.postgres import EmbeddedPostgres

ROWS = 200_000
WARM_SECONDS, FULL_SECONDS = 10.0, 30.0
SAMPLE_SECONDS = 5.0
RETAIN_SECONDS = 60
_YARD = bytes(8_000_000)
TABLE = """
CREATE TABLE steady (id bigint PRIMARY KEY, account int, amount numeric(12, 2), note text, at timestamptz);
INSERT INTO steady SELECT g, g %% 1000, g * 0.01, 'note ' || md5(g::text), now() FROM generate_series(1, %(rows)s) g;
CREATE PUBLICATION steady FOR TABLE steady;
"""


@dataclass
class Steady:
    """What was seen, every few seconds."""

    destination: str
    rate: float
    maximal_rate: float | None = None
    """Changes a second that came through while the writer did what it could; None when a rate was given."""
    samples: list[dict[str, float]] = field(default_factory=list)

    def growth(self, name: str) -> float:
        """By which factor the last third differs from the first."""
        values = np.array([sample[name] for sample in self.samples])
        third = max(1, len(values) // 3)
        first = float(np.median(values[:third]))
        return float(np.median(values[-third:])) / first if first else 1.0


@dataclass(frozen=True)
class Into:
    """Where to, and how often."""

    name: str
    destination: Callable[[Path], Destination]
    held: str
    """File or directory, below the run's, that holds the rows."""
    every: str | None = None
    needs: SparkNeeds = field(default_factory=SparkNeeds)


DUCKDB = Into("DuckDB", lambda directory: DuckDBDestination(directory / "out.duckdb"), "out.duckdb")
# As somebody has it who keeps an hour of versions: here a minute, so that it is seen within the run.
_MINUTE = timedelta(minutes=1)
LAKES = {
    "delta": Into(
        "Delta",
        lambda at: DeltaDestination(at / "lake", maintain_every=_MINUTE, keep_versions=_MINUTE, deletion_vectors=True),
        "lake",
        "10s",
        lake_needs(Path()),
    ),
    "iceberg": Into(
        "Iceberg",
        lambda at: IcebergDestination(at / "lake", maintain_every=_MINUTE, keep_snapshots=_MINUTE),
        "lake",
        "10s",
        lake_needs(Path()),
    ),
}


def measure_steady(minutes: float, console: Console, into: Into = DUCKDB, rate: float | None = None) -> Steady:
    settings = capture_settings(retain_age=RETAIN_SECONDS)
    with EmbeddedPostgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLE % {"rows": ROWS})  # type: ignore[arg-type]
        spark = spark_session(settings=settings_for(into.needs, {}))
        every = copy_settings() if into.every is None else copy_settings(every=into.every)
        with running(server.url, "steady", settings, into=into.destination, settings=every, spark=spark) as (
            pipeline,
            directory,
        ):
            maximal = None
            if rate is None:
                with console.status("finding the maximal rate"):
                    maximal = _maximal_rate(server.url, pipeline)
                rate = maximal / 2
            steady = Steady(into.name, rate, maximal)
            with (
                console.status(f"{steady.rate:,.0f} changes/s for {minutes:.0f} minutes"),
                _writer(server.url, steady.rate),
            ):
                time.sleep(WARM_SECONDS)
                _watch(pipeline, directory, into.held, server.pid, minutes * 60, steady)
    return steady


def _maximal_rate(url: str, pipeline: Pipeline) -> float:
    with _writer(url, 1e9):
        time.sleep(WARM_SECONDS)
        before, begun = status_of(pipeline).changes, time.monotonic()
        time.sleep(FULL_SECONDS)
        found = (status_of(pipeline).changes - before) / (time.monotonic() - begun)
    _wait_for_no_lag(pipeline)
    return found


@contextmanager
def _writer(url: str, rate: float) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-m", "benchmarks.steady_writer", url, str(rate), str(ROWS)])
    try:
        yield
        assert child.poll() is None, "the writer ended"
    finally:
        child.terminate()
        child.wait()


def _wait_for_no_lag(pipeline: Pipeline) -> None:
    while status_of(pipeline).lag_seconds:
        time.sleep(0.1)


def _watch(pipeline: Pipeline, directory: Path, held: str, server: int, seconds: float, steady: Steady) -> None:
    begun, before = time.monotonic(), status_of(pipeline).changes
    then, used = begun, _cpu_seconds(server)
    while (now := time.monotonic()) - begun < seconds:
        time.sleep(max(0.0, then + SAMPLE_SECONDS - now))
        now = time.monotonic()
        lags = []
        for _ in range(5):
            lags.append(status_of(pipeline).lag_seconds)
            time.sleep(0.05)
        status = status_of(pipeline)
        sample = {"at": now - begun, "rate": (status.changes - before) / (now - then), "lag": max(lags)}
        sample["yardstick"] = _yardstick()
        cores, used = used, _cpu_seconds(server)
        sample |= {f"cores_{who}": (used[who] - cores[who]) / (now - then) for who in used}
        sample |= {f"memory_{role}": size for role, size in _memory(server).items()}
        sample["memory"] = sum(size for name, size in sample.items() if name.startswith("memory_"))
        for what, place in (("log", directory / "log"), ("destination", directory / held)):
            files = [path for path in (place, *place.rglob("*")) if path.is_file()]
            sample[f"{what}_files"] = len(files)
            sample[f"{what}_bytes"] = sum(_size(path) for path in files)
        sample["wal_bytes"] = float((status.capture.retained_wal_bytes or 0) if status.capture else 0)
        steady.samples.append(sample)
        before, then = status.changes, now


def _yardstick() -> float:
    """Milliseconds for a piece of work that is always the same. A virtual machine has faster and slower minutes: what
    grows together with this has not grown."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        hashlib.sha256(_YARD).digest()
        best = min(best, time.perf_counter() - begun)
    return best * 1e3


def _cpu_seconds(server: int) -> dict[str, float]:
    """Used up so far by the server, and by the pipeline with all its processes."""

    def spent(processes: Iterable[psutil.Process]) -> float:
        total = 0.0
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                # What ended, and was waited for, is its parent's.
                total += times.user + times.system + times.children_user + times.children_system
        return total

    served = psutil.Process(server)
    return {
        "server": spent([served, *served.children(recursive=True)]),
        "pipeline": spent(process for process, _ in roles_below(os.getpid(), server)),
    }


def _memory(server: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for process, role in roles_below(os.getpid(), server):
        try:
            found[role.value] = found.get(role.value, 0.0) + process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def steady_as_json(steady: Steady) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(steady), default=float))  # type: ignore[no-any-return]


def show_steady(steady: Steady, console: Console) -> None:
    seconds = steady.samples[-1]["at"]
    lags = np.array([sample["lag"] for sample in steady.samples])
    if steady.maximal_rate is not None:
        console.print(f"maximal {steady.maximal_rate:,.0f} changes/s, with the writer on the same machine")
    console.print(
        f"into {steady.destination}, {np.mean([sample['rate'] for sample in steady.samples]):,.0f} changes/s"
        f" for {seconds / 60:.1f} minutes:"
        f" lag median {np.median(lags):.2f} s, worst {lags.max():.2f} s"
    )
    for name in (
        "yardstick",
        "cores_server",
        "cores_pipeline",
        "lag",
        "memory",
        "log_files",
        "log_bytes",
        "destination_files",
        "destination_bytes",
        "wal_bytes",
    ):
        last = steady.samples[-1][name]
        console.print(f"  {name:17} last third / first third: {steady.growth(name):.2f}   at the end {last:,.2f}")


def plot_steady(steady: Steady, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    at = [sample["at"] / 60 for sample in steady.samples]
    figure, axes = plt.subplots(5, 1, figsize=(9.5, 11), sharex=True, layout="constrained")

    def draw(axis: Any, names: dict[str, str], scale: float, label: str) -> None:
        for name, title in names.items():
            axis.plot(at, [sample.get(name, 0.0) / scale for sample in steady.samples], label=title, linewidth=1.2)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        if len(names) > 1:
            axis.legend(frameon=False, ncols=len(names), fontsize=8, loc="upper right")

    roles = {name: name.removeprefix("memory_") for name in steady.samples[0] if name.startswith("memory_")}
    draw(axes[0], {"rate": "changes/s"}, 1e3, "thousand changes/s")
    draw(axes[1], {"lag": "lag"}, 1, "lag, s")
    slow = axes[1].twinx()
    slow.plot(at, [sample["yardstick"] for sample in steady.samples], color="#8d939b", linewidth=0.8, linestyle=":")
    slow.set_ylabel("fixed work, ms (dotted)")
    slow.set_ylim(bottom=0)
    draw(axes[2], {"cores_server": "Postgres", "cores_pipeline": "pipeline and writer"}, 1, "cores in use")
    draw(axes[3], roles, 1e6, "memory, MB")
    draw(
        axes[4],
        {"log_bytes": "change log", "destination_bytes": steady.destination, "wal_bytes": "WAL kept back"},
        1e6,
        "on disk, MB",
    )
    twin = axes[4].twinx()
    twin.plot(at, [sample["log_files"] for sample in steady.samples], color="#8d939b", linewidth=0.8, linestyle=":")
    many = [sample["destination_files"] for sample in steady.samples]
    if max(many) > 1:
        twin.plot(at, many, color="#c05020", linewidth=0.8, linestyle=":")
    twin.set_ylabel("files of log and destination (dotted)")
    twin.set_ylim(bottom=0)
    axes[4].set_xlabel("minutes")
    axes[0].set_title(
        f"A pipeline into {steady.destination} at {steady.rate:,.0f} changes/s"
        + (f", half of its maximal {steady.maximal_rate:,.0f}" if steady.maximal_rate else ""),
        loc="left",
        fontsize=11.5,
        fontweight="bold",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight", pad_inches=0.15)
    plt.close(figure)
