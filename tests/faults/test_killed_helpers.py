"""A driver's helpers, killed while it or capture stands at each place, in every phase, under a workload.

Spark's Python processes in one long life of a pipeline, capture in another: the driver survives them all.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.faults.capture_kit import (
    RestingWorkload,
    create_tables,
    help_to_pass,
    streaming_early,
    wait_until,
)
from tests.faults.pipeline_kit import OF_LAKES, Driver, assert_ledger_is_whole, drop_slot, finish
from tests.repetitions import some
from walrelay.failpoints import NAMES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]

OF_A_SLOT = ("slot.before_create", "slot.after_create")
OF_A_COPY = ("copy.during", "destination.piece", "copy.after_finished", "catchup.before", "catchup.after")
"""From the phase `data_sync` to `sync_done`; each with a table of its own, which joins while the others are ready."""
OF_CHANGES = (
    "events.before_write",
    "destination.before_commit",
    "destination.ddl",
    "events.after_write",
    "progress.before_record",
    "progress.after_record",
)
OF_CAPTURE = (
    "spill.write",
    "segment.before_publish",
    "segment.files_durable",
    "segment.after_publish",
    "head.before_advance",
    "ack.before",
    "ack.after",
    "compaction.before_publish",
    "compaction.after_publish",
)
IN_SHORT = ("copy.during", "destination.before_commit")
"""One on each road; who stands in `destination.ddl` is killed himself in test_killed_pipeline.py."""


@pytest.fixture
def slot(database: str) -> Iterator[str]:
    name = f"helpers_{database.rpartition('_')[2]}"
    yield name
    drop_slot(database, name)


class Stops:
    """Lets a driver, or its capture, stop at a place, and kills Spark's Python processes while it stands there."""

    def __init__(self, url: str, slot: str, directory: Path) -> None:
        self._order = directory / "stop_at"
        places = ",".join(f"{name}=stop:{self._order}" for name in sorted(NAMES))
        self.at(OF_A_SLOT[0])
        self.driver = Driver(
            streaming_early(url).url,
            slot,
            directory,
            failpoints=places,
            capture_failpoints=places,
            capture={"memory_bytes": 1024 * 1024},
            piece_bytes=8192,
        )

    def at(self, place: str) -> None:
        """Stop there, at the next pass."""
        fresh = self._order.with_suffix(".new")
        fresh.write_text(place)
        fresh.replace(self._order)

    def stopped(self) -> psutil.Process:
        """Whoever stands there now."""
        place = self._order.read_text() if self._order.exists() else "the place"
        found: list[psutil.Process] = []

        def look() -> bool:
            assert self.driver.process.poll() is None, f"it ended before {place}; it said {self.driver.said}"
            candidates = (psutil.Process(self.driver.process.pid), self.driver.capture())
            found[:] = [one for one in candidates if one is not None and one.status() == psutil.STATUS_STOPPED]
            return bool(found)

        try:
            wait_until(look, f"it comes to {place}", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {self.driver.said}") from None
        return found[0]

    def kill(self, choose: Callable[[list[psutil.Process]], list[psutil.Process]]) -> None:
        """Those of Spark's Python processes, as soon as there are some. The JVM does not stand still meanwhile."""

        def killed() -> bool:
            found = False
            with suppress(psutil.Error):  # one has ended just now
                for one in choose(self.driver.workers()):
                    one.kill()
                    found = True
            return found

        wait_until(killed, "Spark has Python processes", 60)


def everyone(found: list[psutil.Process]) -> list[psutil.Process]:
    """Also those from which others are forked: Spark then keeps dead ones, and comes across them one by one."""
    return found


def forked(found: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do the work of tasks, or wait for some."""
    return [one for one in found if one.parent() in found]


def looking_at_the_log(found: list[psutil.Process]) -> list[psutil.Process]:
    """The one of the streaming query."""
    return [one for one in found if any("python_streaming_source_runner" in word for word in one.cmdline())]


def at_work(found: list[psutil.Process]) -> list[psutil.Process]:
    return forked(found) + looking_at_the_log(found)


def test_every_place_is_passed() -> None:
    assert {*OF_A_SLOT, *OF_A_COPY, *OF_CHANGES, *OF_CAPTURE, *OF_LAKES} == NAMES


def test_spark_workers_killed_at_every_place_lose_nothing_and_double_nothing(
    database: str, slot: str, tmp_path: Path
) -> None:
    with stopping(database, slot, tmp_path) as (stops, bursts):
        driver = stops.driver
        # Before there is a slot nothing is copied, so nobody starts new ones: first who works, then who forks.
        capture = stops.stopped()
        stops.kill(forked)
        stops.at(OF_A_SLOT[1])
        capture.send_signal(signal.SIGCONT)
        capture = stops.stopped()
        stops.kill(everyone)
        capture.send_signal(signal.SIGCONT)
        with bursts.running():
            driver.wait_for("ready")
            driver.wait_for("spark calls")
            for place in some(IN_SHORT, (*OF_A_COPY, *OF_CHANGES, *OF_CAPTURE)):
                stops.at(place)
                provoke(place, database, bursts)
                with help_to_pass(place, database, bursts):
                    process = stops.stopped()
                    stops.kill(everyone if place == "copy.during" else at_work)
                    process.send_signal(signal.SIGCONT)
                driver.wait_for("notice Spark lost its streaming query")
                driver.wait_for("spark calls")  # there is one again to be killed


def test_capture_killed_at_every_place_of_the_driver_loses_nothing_and_doubles_nothing(
    database: str, slot: str, tmp_path: Path
) -> None:
    """At its own places it is killed in test_killed_capture.py."""
    with stopping(database, slot, tmp_path) as (stops, bursts):
        for following in (OF_A_SLOT[1], ""):
            capture = stops.stopped()
            stops.at(following)
            capture.kill()
        with bursts.running():
            stops.driver.wait_for("ready")
            for place in some(IN_SHORT, (*OF_A_COPY, *OF_CHANGES)):
                stops.at(place)
                provoke(place, database, bursts)
                with help_to_pass(place, database, bursts):
                    process = stops.stopped()
                    capture = stops.driver.capture()
                    assert capture is not None
                    capture.kill()
                    if process != capture:
                        process.send_signal(signal.SIGCONT)
                stops.driver.wait_for("notice capture was killed by signal 9")
                wait_until(lambda: stops.driver.capture() not in (None, capture), "it is started again", 60)  # noqa: B023 - called here


@contextmanager
def stopping(url: str, slot: str, directory: Path) -> Iterator[tuple[Stops, RestingWorkload]]:
    """A pipeline that stops where it is told to, and a workload. Afterwards source and destination are equal."""
    workload = create_tables(url, seed=72, clients=2, large_rows=800)
    workload.run(transactions=100)
    stops = Stops(url, slot, directory)
    try:
        yield stops, RestingWorkload(workload, burst=6, rest=0.4, sample_every=10**6)
    finally:
        stops.driver.close()
    finish(url, slot, directory)
    assert_ledger_is_whole(url, directory)


def provoke(place: str, url: str, bursts: RestingWorkload) -> None:
    """What must happen once that the driver comes there, if it does not come all the time."""
    with psycopg.connect(url, autocommit=True) as connection:
        if place in OF_A_COPY:
            name = place.replace(".", "_")
            connection.execute(
                f"CREATE TABLE {name} AS SELECT g::int AS id, md5(g::text) AS word FROM generate_series(1, 3000) AS g"
            )
            connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
            connection.execute(f"ALTER PUBLICATION p ADD TABLE {name}")
            connection.execute(f"UPDATE {name} SET word = word || '!' WHERE id % 3 = 0")
        elif place == "destination.ddl":
            with bursts.paused():
                connection.execute("ALTER TABLE ledger ADD COLUMN extra_mark text")
