"""Many random worlds, each with drivers that are killed: `make worlds`. In the end source and destination are equal."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb
from rich.console import Console
from rich.markup import escape

from tests.faults.pipeline_kit import Driver, drop_slot
from tests.spark.runs_kit import asked_for, can_migrate_source
from walrelay.testing.both_sides import differences
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.worlds import PLACES, World

PATIENCE = 180.0


@dataclass(frozen=True)
class Outcome:
    """How a world ended."""

    seed: int
    trigger: bool
    seconds: float
    copies: int
    most: str
    """The table that was copied most often."""
    wrong: str


def run_worlds(seeds: Iterable[int], kills: int, trigger: bool | None, console: Console) -> bool:
    """Whether both sides were equal in all of them. Those that were not are named, with how to have them again."""
    outcomes = []
    with EmbeddedPostgres() as server:
        for seed in seeds:
            with_trigger = can_migrate_source() and (seed % 2 == 0 if trigger is None else trigger)
            url = server.create_database(f"world_{seed}")
            outcome = _run_world(url, seed, kills, with_trigger)
            outcomes.append(outcome)
            console.print(
                f"seed {seed:4}  {'trigger' if with_trigger else 'plain':7}  {outcome.seconds:4.0f} s "
                f"{outcome.copies:4} copies (most: {outcome.most})  {'DIFFERS' if outcome.wrong else 'equal'}"
            )
            if outcome.wrong:
                again = f"python -m benchmarks worlds --seeds 1 --first {seed} --{'' if with_trigger else 'no-'}trigger"
                console.print(f"{again}\n{escape(outcome.wrong)}", soft_wrap=True)
    failed = [one for one in outcomes if one.wrong]
    console.print(f"{len(outcomes)} worlds, {sum(one.copies for one in outcomes)} copies, {len(failed)} not equal")
    return not failed


def _run_world(url: str, seed: int, kills: int, trigger: bool) -> Outcome:
    begun, slot, copies = time.monotonic(), f"world_{seed}", Counter[str]()
    chance = Random(f"{seed}/kills")
    world = World(url, seed)
    world.create()
    with tempfile.TemporaryDirectory(prefix="walrelay-worlds-") as name:
        directory = Path(name)
        try:
            copies += _kill_one(url, slot, directory, trigger, chance, world, at_rest=True)
            for _ in range(kills - 1):
                copies += _kill_one(url, slot, directory, trigger, chance, world, at_rest=False)
            world.finish()
            wrong = _finish(url, slot, directory, trigger, copies) or world.explained(
                differences(url, world.publication, directory / "out.duckdb")
            )
        except (AssertionError, duckdb.Error, subprocess.TimeoutExpired) as failure:
            wrong = f"{type(failure).__name__}: {failure}"
        finally:
            drop_slot(url, slot)
    most = ", ".join(f"{table} {number}" for table, number in copies.most_common(1))
    return Outcome(seed, trigger, time.monotonic() - begun, copies.total(), most, wrong)


def _kill_one(
    url: str, slot: str, directory: Path, trigger: bool, chance: Random, world: World, *, at_rest: bool
) -> Counter[str]:
    """A driver, killed in a changing world; the first one has copied all tables before anything happens. What happens
    after its end is for the next one to find."""
    at = f"{chance.choice(PLACES)}=kill:{chance.randint(1, 5)}" if chance.random() < 0.5 and not at_rest else ""
    driver = Driver(url, slot, directory, failpoints=at, pipeline=asked_for(trigger))
    try:
        driver.wait_for("ready" if at_rest else "running")
        with world.running():
            try:
                driver.process.wait(chance.uniform(0, 8))
                driver.wait_killed()
            except subprocess.TimeoutExpired:
                driver.kill()
        world.run(chance.randint(0, 40))
    finally:
        driver.close()
    return _copied(driver)


def _finish(url: str, slot: str, directory: Path, trigger: bool, copies: Counter[str]) -> str:
    """The last driver, until it is caught up; what it says when it fails."""
    driver = Driver(url, slot, directory, until="caught-up", pipeline=asked_for(trigger))
    try:
        code = driver.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return f"the last driver did not catch up within {PATIENCE:.0f} s; it said {driver.said[-20:]}"
    finally:
        driver.close()
        copies += _copied(driver)
    return "" if code == 0 else f"the last driver ended with {code}; it said {driver.said[-20:]}"


def _copied(driver: Driver) -> Counter[str]:
    driver.hear_out()
    return Counter(line.split()[1] for line in driver.said if line.startswith("copying "))
