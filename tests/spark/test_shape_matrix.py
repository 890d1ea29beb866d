"""Everything that may happen to a table's shape, in every way that it may come: afterwards both sides must be equal.

All scenarios of a publication share one run, and are reported together. To look at some alone, name them; to leave some
out, put a minus before:

    WALRELAY_SHAPES=two_renames,rounded pytest -s tests/spark/test_shape_matrix.py -k tables-backlog
"""

from __future__ import annotations

import os

import pytest

from tests.spark.live_kit import Live
from tests.spark.runs_kit import Runs
from tests.spark.shape_kit import WAYS, Shapes, interrupted
from tests.spark.shape_scenarios import GROUPS, SCENARIOS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

IN_SHORT = {
    "backlog": ("tables", "listed", "root", "all", "publish"),
    "one_transaction": ("tables", "listed", "root"),
    "live": ("tables",),
}
"""What `make test` runs, without the trigger: every scenario when nobody looks, and each other way in the groups in
which it differs most. `make shapes` runs all of them."""
KILLED = ("tables", "root")
"""The groups whose drivers are killed. The others are interrupted: a driver takes as long as a whole test."""


@pytest.mark.parametrize(
    ("group", "way", "trigger"),
    [
        pytest.param(group, way, trigger, id=f"{group}-{way}-{'trigger' if trigger else 'plain'}")
        for group in GROUPS
        for way in WAYS
        for trigger in (False, True)
        if (group in IN_SHORT.get(way, ()) and not trigger) or os.environ.get("WALRELAY_ALL_SHAPES")
    ],
)
def test_both_sides_are_equal_whatever_happened_to_the_tables(live: Live, group: str, way: str, trigger: bool) -> None:
    scenarios = [one for one in SCENARIOS if one.group == group and is_chosen(one.name)]
    if not scenarios:
        pytest.skip("none of the chosen scenarios is in this group")
    shapes = Shapes(live, group, scenarios, Runs(live, trigger))
    shapes.prepare()
    run = interrupted if way == "killed" and group not in KILLED else WAYS[way]
    run(shapes)
    shapes.show(way)
    wrong = shapes.failures() + shapes.wrong_copies()
    if wrong:
        pytest.fail(f"{len(wrong)} things are wrong:\n  " + "\n  ".join(wrong), pytrace=False)


def is_chosen(name: str) -> bool:
    chosen = set(filter(None, os.environ.get("WALRELAY_SHAPES", "").split(",")))
    wanted = {one for one in chosen if not one.startswith("-")}
    return f"-{name}" not in chosen and (not wanted or name in wanted)


def test_every_scenario_has_a_name_and_a_group_of_its_own() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    assert {one.group for one in SCENARIOS} == set(GROUPS)
