"""Sources whose tables, partitions and publication change at random: in the end both sides must be equal.

`make worlds` runs many more, with drivers that are killed. A failing seed can be had again, as far as threads allow:
`pytest "tests/spark/test_random_worlds.py::test_a_random_world_arrives_whole[1-plain]"`.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.spark.live_kit import Live
from tests.spark.runs_kit import Runs, can_migrate_source
from walrelay.testing.both_sides import differences
from walrelay.testing.failpoints import armed
from walrelay.testing.worlds import PLACES, World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ALL_SHAPES = bool(os.environ.get("WALRELAY_ALL_SHAPES"))
STEPS = 40 if ALL_SHAPES else 12
"""Transactions of each client in a part of a life: `make shapes` takes its time."""
LIVES = [(1, False), (4, True)]
MORE_LIVES = [(2, False), (3, False), (5, True)]
"""Seeds that `make shapes` adds."""
MOMENTS = 1.0
"""Within so many seconds a pipeline is stopped, while clients go on."""


def a_life(world: World, runs: Runs) -> None:
    """Tables change while they are copied, and afterwards; capture is killed, a step of the pipeline fails, it is
    stopped at any moment, and more happens while none runs. Then it catches up."""
    chance = Random(f"{world.seed}/life")
    pipeline = runs.start()
    assert runs.wait_running(pipeline), f"it does not begin: {runs.troubles}"
    world.run(STEPS // 3)
    assert runs.wait_ready(pipeline), f"the tables are not copied: {pipeline.status()} {runs.troubles}"
    with armed(f"{chance.choice(PLACES)}=fail:1"):
        world.run(STEPS)
        runs.kill_capture(pipeline)
        world.run(STEPS)
        with world.running():
            runs.end(pipeline, chance.uniform(0, MOMENTS))
            runs.stop(pipeline)
    world.run(STEPS)
    world.finish()
    runs.catch_up()


@pytest.mark.parametrize(
    ("seed", "trigger"),
    [
        pytest.param(seed, trigger, id=f"{seed}-{'trigger' if trigger else 'plain'}")
        for seed, trigger in LIVES + (MORE_LIVES if ALL_SHAPES else [])
    ],
)
def test_a_random_world_arrives_whole(live: Live, seed: int, trigger: bool) -> None:
    if trigger and not can_migrate_source():
        pytest.skip("this version has no DDL trigger")
    world, runs = World(live.url, seed), Runs(live, trigger)
    world.create()
    a_life(world, runs)
    print(f"\nseed {seed}: {runs.copies.started.total()} copies; {dict(world.counts.committed)}")
    wrong = world.explained(differences(live.url, "p", live.file))
    if wrong or runs.troubles:
        pytest.fail("\n".join([*runs.troubles, wrong]), pytrace=False)


def test_a_world_of_rows_only_takes_no_second_copy(live: Live) -> None:
    world, runs = World(live.url, 6, changes=False), Runs(live, can_migrate_source())
    world.create()
    a_life(world, runs)
    wrong = world.explained(differences(live.url, "p", live.file))
    assert not wrong and not runs.troubles, "\n".join([*runs.troubles, wrong])
    copies = runs.copies.started - runs.copies.begun_again
    assert len(copies) == 10 and set(copies.values()) == {1}, runs.copies.notices


def test_a_world_that_was_copied_afterwards_is_found_equal(live: Live) -> None:
    """So that a difference is the pipeline's, and not one of how both sides are compared."""
    world, runs = World(live.url, 7), Runs(live, False)
    world.create()
    world.run(3 * STEPS)
    world.finish()
    runs.catch_up()
    wrong = world.explained(differences(live.url, "p", live.file))
    assert not wrong and not runs.troubles, "\n".join([*runs.troubles, wrong])
