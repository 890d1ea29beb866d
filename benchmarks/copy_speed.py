"""The copy race: all contenders in one run, round-robin, on one machine against one server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.contenders import (
    CONTENDERS,
    JDBC_PACKAGE,
    Arena,
    Contender,
    Lap,
    PsqlCopy,
    UnavailableError,
)
from benchmarks.machine import describe_machine
from benchmarks.peers import PeerError
from benchmarks.sampling import MemoryPeak, MemorySampler, Role
from benchmarks.tables import Table, make_bench_table
from walrelay.destinations.capabilities import SparkNeeds
from walrelay.spark.needs import settings_for
from walrelay.testing.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WrongCountError(Exception):
    """A contender did not copy all rows: its time means nothing."""


@dataclass
class Standing:
    """One contender's laps."""

    name: str
    label: str
    peak: MemoryPeak
    roles: frozenset[Role]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Goal:
    """A ratio of two rates that the project promises; higher is better."""

    ours: str
    theirs: str
    target: float


GOALS = (
    Goal("walrelay-null", "psql", 0.85),
    Goal("walrelay-duckdb", "duckdb-extension", 0.65),
    Goal("walrelay-null", "jdbc-null", 1.0),
)


@dataclass(frozen=True)
class Race:
    """The outcome of a run."""

    machine: dict[str, Any]
    table: Table
    copy_bytes: int
    standings: tuple[Standing, ...]
    absent: dict[str, str]
    """Who did not take part, and why."""
    goals: tuple[Goal, ...]

    def find(self, name: str) -> Standing | None:
        return next((standing for standing in self.standings if standing.name == name), None)

    def ratio(self, ours: str, theirs: str) -> float | None:
        """How many times the rate of `theirs` our rate is."""
        a, b = self.find(ours), self.find(theirs)
        return None if a is None or b is None else b.median / a.median


def run_race(
    *,
    rows: int,
    repeat: int,
    skip: Iterable[str],
    console: Console,
    contenders: Sequence[type[Contender]] = CONTENDERS,
    goals: tuple[Goal, ...] = GOALS,
    needs: SparkNeeds | None = None,
) -> Race:
    """Make the table, warm everybody up, measure memory, then time `repeat` rounds. `needs`: what the contenders want
    of Spark, beside the JDBC driver."""
    machine = describe_machine()
    with (
        EmbeddedPostgres() as server,
        tempfile.TemporaryDirectory(prefix="walrelay-bench-") as directory,
        spark_on_demand(needs or SparkNeeds()) as spark,
    ):
        with console.status(f"making a table of {rows:,} rows"):
            table = make_bench_table(server.url, rows)
        arena = Arena(table, Path(directory), server.bin_dir / "psql", spark)
        skipped = frozenset(skip)
        field_ = [kind(arena) for kind in contenders if kind.name not in skipped]
        absent = dict.fromkeys(sorted(skipped), "skipped")
        standings = _warm_up(field_, server.pid, absent, console)
        racing = [contender for contender in field_ if contender.name in standings]
        _time(racing, standings, repeat, console)
        copy_bytes = sum(c.copy_bytes for c in racing if isinstance(c, PsqlCopy))
    return Race(machine, table, copy_bytes, tuple(standings.values()), absent, goals)


def _warm_up(
    contenders: Sequence[Contender], server_pid: int, absent: dict[str, str], console: Console
) -> dict[str, Standing]:
    """Run everybody twice: once to warm up and count the rows, once to look at the memory."""
    standings = {}
    for contender in contenders:
        with console.status(f"warming up: {contender.label}"):
            try:
                _accept(contender, contender.checked())
                with MemorySampler(contender.roles, server_pid) as sampler:
                    _accept(contender, contender.run())
            except (UnavailableError, PeerError) as reason:
                absent[contender.name] = str(reason)
                console.print(f"[yellow]{contender.name} does not take part:[/] {reason}")
                continue
        standings[contender.name] = Standing(contender.name, contender.label, sampler.peak, contender.roles)
    return standings


def _time(contenders: Sequence[Contender], standings: dict[str, Standing], repeat: int, console: Console) -> None:
    for number in range(repeat):
        # Each round begins with another one, so that nobody always runs in the wake of the same predecessor.
        begin = number % max(len(contenders), 1)
        for contender in (*contenders[begin:], *contenders[:begin]):
            with console.status(f"round {number + 1} of {repeat}: {contender.label}"):
                standings[contender.name].seconds.append(_accept(contender, contender.run()).seconds)
        times = "  ".join(f"{s.name} {s.seconds[-1]:.2f}" for s in standings.values())
        console.print(f"[dim]round {number + 1}: {times}[/]")


def _accept(contender: Contender, lap: Lap) -> Lap:
    contender.clean()
    if lap.rows is not None and lap.rows != contender.table.rows:
        raise WrongCountError(f"{contender.name} copied {lap.rows} of {contender.table.rows} rows")
    return lap


@contextmanager
def spark_on_demand(needs: SparkNeeds) -> Iterator[Callable[[], SparkSession]]:
    """The run's one session, started by the first who asks and stopped at the end."""
    from walrelay.spark.session import spark_session

    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            # All of the JVM's compilers: our own default, the quick one, would slow the JDBC reader down.
            settings = {"spark.jars.packages": JDBC_PACKAGE, "spark.driver.extraJavaOptions": ""}
            started.append(spark_session(settings=settings_for(needs, settings)))
        return started[0]

    try:
        yield session
    finally:
        for found in started:
            found.stop()
