"""Runs the scenarios of `shape_scenarios.py` through one pipeline, in one of several ways, and says what is wrong."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import psycopg

from tests.faults.pipeline_kit import Driver
from tests.spark.live_kit import Live
from tests.spark.runs_kit import CATCH_UP_PATIENCE, READY_PATIENCE, Runs, asked_for
from tests.spark.shape_scenarios import GROUPS, Scenario
from walrelay.control.agreement import compare
from walrelay.errors import WalrelayError
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.both_sides import differences
from walrelay.testing.failpoints import armed

CONTROL = "control_table"


@dataclass
class Shapes:
    """One database with the tables of all scenarios of a group, and the pipelines on it."""

    live: Live
    group: str
    scenarios: list[Scenario]
    runs: Runs

    def __post_init__(self) -> None:
        self._listed = {text.split()[0]: text for one in self.scenarios for text in one.filled(one.listed)} | {
            CONTROL: CONTROL
        }

    def prepare(self) -> None:
        self.live.sql(
            "CREATE SCHEMA inside",
            "CREATE TYPE parity AS ENUM ('odd', 'even')",
            f"CREATE TABLE {CONTROL} (id int PRIMARY KEY, c text)",
            f"INSERT INTO {CONTROL} SELECT g, 'c' || g FROM generate_series(1, 200) AS g",
        )
        for one in self.scenarios:
            self.live.sql(*one.filled(one.setup))
        kind = GROUPS[self.group].format(tables=", ".join(self._listed.values()))
        self.live.sql(f"CREATE PUBLICATION p {kind}")

    # ------------------------------------------------------------------------------------------------------- steps

    def rounds(self) -> Iterable[list[str]]:
        """The first steps of all scenarios, then the second ones, and so on, and a change of the control table each."""
        for number, steps in enumerate(zip_longest(*(one.filled(one.steps) for one in self.scenarios)), 1):
            yield [f"UPDATE {CONTROL} SET c = 'round {number}' WHERE id = {number}", *filter(None, steps)]

    def do(self, steps: Iterable[str]) -> None:
        """Each in a transaction of its own."""
        self.live.sql("SET lock_timeout = '60s'", *map(self._statement, steps))

    def do_in_one_transaction_each(self) -> None:
        """All steps of a scenario in one transaction."""
        for one in self.scenarios:
            with psycopg.connect(self.live.url) as connection:
                connection.execute("SET synchronous_commit = on; SET lock_timeout = '60s'")
                for step in one.filled(one.steps):
                    connection.execute(self._statement(step))  # type: ignore[call-overload]

    def _statement(self, step: str) -> str:
        match step.split(maxsplit=5):
            case ["ALTER", "PUBLICATION", "p", "DROP", "TABLE", name]:
                del self._listed[name]
            case ["ALTER", "PUBLICATION", "p", "ADD", "TABLE", name]:
                self._listed[name] = name
            case ["LIST", name, *_]:
                self._listed[name] = step.removeprefix("LIST ")
                return f"ALTER PUBLICATION p SET TABLE {', '.join(self._listed.values())}"
        return step

    # --------------------------------------------------------------------------------------------------------- end

    def failures(self) -> list[str]:
        """What is wrong now, scenario by scenario; and what went wrong on the way."""
        found = list(self.runs.troubles)
        second = self._second_opinion()
        agreed = self._agreement()
        for name, tables in self._tables().items():
            for table in tables:
                if table not in second:
                    found.append(f"{name}: {table} is not in the publication; the scenario is wrong")
                    continue
                found += [f"{name}: {table} {what}" for what in second[table]]
                if not second[table] and agreed.get(table):
                    found.append(f"{name}: {table} by the product's own comparison: {agreed[table]}")
        return found

    def _second_opinion(self) -> dict[str, list[str]]:
        return differences(self.live.url, "p", self.live.file)

    def _agreement(self) -> dict[str, str]:
        """What the product itself says about tables that differ."""
        try:
            return {str(one.name): str(one) for one in compare(self.live.source, self.live.file) if not one.agrees}
        except WalrelayError as error:
            self.runs.troubles.append(f"the product's comparison failed with {error.code}: {error.message}")
            return {}

    def _tables(self) -> dict[str, list[str]]:
        return {CONTROL: [f"public.{CONTROL}"], **{one.name: one.filled(one.tables) for one in self.scenarios}}

    def copies_by_scenario(self) -> dict[str, int]:
        """Copies that were begun, under whatever name a table had; a scenario of two tables needs two."""
        found = Counter[str]()
        names = sorted([CONTROL, *(one.name for one in self.scenarios)], key=len, reverse=True)
        for table, number in self.runs.copies.started.items():
            name = next((name for name in names if _is_of(table, name)), "?")
            found[name] += number
        return dict(found)

    def wrong_copies(self) -> list[str]:
        copies = self.copies_by_scenario()
        once = [] if self.group == "publish" else [CONTROL]  # there the control table misses changes as well
        if self.runs.trigger:
            once += [one.name for one in self.scenarios if one.copied_once]
        return [f"{name}: copied {copies.get(name, 0)} times, not once" for name in once if copies.get(name) != 1]

    def show(self, way: str) -> None:
        print(f"\ncopies, {self.group}, {way}, {'with' if self.runs.trigger else 'without'} the trigger")
        for name, number in self.copies_by_scenario().items():
            print(f"  {name:36} {number}")


def _is_of(table: str, name: str) -> bool:
    schema, _, plain = table.partition(".")
    return plain == name or plain.startswith(f"{name}_") or schema in (name, f"{name}_tmp")


# ------------------------------------------------------------------------------------------------------------ the ways


def beforehand(shapes: Shapes) -> None:
    """The steps come before the first pipeline: that both sides are found equal shows that they can be."""
    for steps in shapes.rounds():
        shapes.do(steps)
    shapes.runs.catch_up()


def live(shapes: Shapes) -> None:
    """The steps come one by one, each when the pipeline has seen those before."""
    pipeline = shapes.runs.start_ready()
    for steps in shapes.rounds():
        shapes.do(steps)
        shapes.runs.settle(pipeline)
    shapes.runs.wait_equal(pipeline)
    shapes.runs.stop(pipeline)
    shapes.runs.catch_up()


def backlog(shapes: Shapes) -> None:
    """The steps come while no pipeline runs."""
    shapes.runs.stop(shapes.runs.start_ready())
    for steps in shapes.rounds():
        shapes.do(steps)
    shapes.runs.catch_up()


def one_transaction(shapes: Shapes) -> None:
    """The steps of a scenario come at one commit, while the pipeline runs."""
    pipeline = shapes.runs.start_ready()
    shapes.do_in_one_transaction_each()
    shapes.runs.wait_equal(pipeline)
    shapes.runs.stop(pipeline)
    shapes.runs.catch_up()


def interrupted(shapes: Shapes) -> None:
    """The pipeline is stopped in the middle, and the next one's answers from the destination are lost."""
    rounds = list(shapes.rounds())
    half = len(rounds) // 2
    pipeline = shapes.runs.start_ready()
    for steps in rounds[:half]:
        shapes.do(steps)
    shapes.runs.stop(pipeline)
    for steps in rounds[half:]:
        shapes.do(steps)
    with armed("events.after_write=fail:1,copy.after_finished=fail:1"):
        pipeline = shapes.runs.start()
        shapes.runs.settle(pipeline)
        shapes.runs.stop(pipeline)
    shapes.runs.catch_up()


def killed(shapes: Shapes) -> None:
    """A driver is killed in the middle, the next one before a commit of what it finds."""
    directory = Path(shapes.live.file).parent
    rounds = list(shapes.rounds())
    half = len(rounds) // 2
    driver = _driver(shapes, directory)
    try:
        driver.wait_for("ready", READY_PATIENCE)
        for steps in rounds[:half]:
            shapes.do(steps)
        driver.kill()
    finally:
        _count(shapes, driver)
    for steps in rounds[half:]:
        shapes.do(steps)
    driver = _driver(shapes, directory, failpoints="destination.before_commit=kill:3", until="caught-up")
    try:
        driver.process.wait(CATCH_UP_PATIENCE)
    except subprocess.TimeoutExpired:
        shapes.runs.troubles.append(f"a driver was not caught up within {CATCH_UP_PATIENCE:.0f} s")
    finally:
        _count(shapes, driver)
    shapes.runs.catch_up(id="killed", store=SqliteStore(directory / "state.sqlite", "killed"))


def _driver(shapes: Shapes, directory: Path, **more: str) -> Driver:
    return Driver(
        shapes.live.url,
        shapes.live.slot,
        directory,
        pipeline=asked_for(shapes.runs.trigger),
        **more,  # type: ignore[arg-type]
    )


def _count(shapes: Shapes, driver: Driver) -> None:
    driver.close()
    driver.hear_out()
    shapes.runs.copies.started.update(line.split()[1] for line in driver.said if line.startswith("copying "))


WAYS: dict[str, Callable[[Shapes], None]] = {
    "beforehand": beforehand,
    "live": live,
    "backlog": backlog,
    "one_transaction": one_transaction,
    "killed": killed,
}
