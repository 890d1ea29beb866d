"""Two looks at the catalog around a message say which columns it names, or that nobody can know: never a wrong one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walrelay.model.sightings import NamedColumn, SeenColumn, Sighting, attribute_numbers

NAMES = "abcd"
TYPES = (23, 25)


@dataclass
class Table:
    """What Postgres keeps of a table's columns, and how it changes that."""

    columns: list[SeenColumn] = field(default_factory=list)
    xid: int = 10

    def __post_init__(self) -> None:
        self.columns = [SeenColumn(1, "id", 23, -1, 10, True), SeenColumn(2, "a", 25, -1, 10, True)]

    def live(self) -> list[SeenColumn]:
        return [one for one in self.columns if not one.dropped]

    def look(self) -> Sighting:
        return Sighting(1, tuple(self.columns), made_by=10)

    def message(self) -> tuple[list[NamedColumn], tuple[int, ...]]:
        live = self.live()
        return [NamedColumn(one.name, one.type, one.modifier) for one in live], tuple(one.attnum for one in live)

    def _put(self, old: SeenColumn, **changes: object) -> None:
        self.columns[old.attnum - 1] = replace(old, written_by=self.xid, **changes)  # type: ignore[arg-type]

    def alter(self, rng: random.Random) -> None:
        """Any of: add, drop, rename, retype, touch; mostly in a transaction of its own."""
        if rng.random() < 0.7:
            self.xid += 1
        free = [name for name in NAMES if name not in {one.name for one in self.live()}]
        others = self.live()[1:]
        match rng.choice(["add", "add", "drop", "drop", "rename", "retype", "touch"]):
            case "add" if free:
                number = len(self.columns) + 1
                self.columns.append(SeenColumn(number, rng.choice(free), rng.choice(TYPES), -1, self.xid, True))
            case "drop" if others:
                self._put(rng.choice(others), name="", type=0, sent=False, dropped=True)
            case "rename" if others and free:
                self._put(rng.choice(others), name=rng.choice(free))
            case "retype" if others:
                self._put(rng.choice(others), type=rng.choice(TYPES))
            case "touch" if others:
                self._put(rng.choice(others))
            case _:
                pass


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_numbers_are_right_or_unknown(seed: int, before: int, after: int, is_seen_before: bool) -> None:
    rng = random.Random(seed)
    table = Table()
    for _ in range(rng.randrange(3)):
        table.alter(rng)
    first = table.look() if is_seen_before else None
    for _ in range(before):
        table.alter(rng)
    columns, truth = table.message()
    writer = table.xid + 1
    for _ in range(after):
        table.alter(rng)
    found = attribute_numbers(columns, first, table.look(), xid=writer)
    assert found in (truth, None)
    if before + after == 0 and first is not None:
        assert found == truth, "nothing was altered, so nothing is in doubt"


def test_most_histories_with_one_alteration_are_certain() -> None:
    """A rule that never knows anything would be right as well."""
    known = total = 0
    for seed in range(2000):
        rng = random.Random(seed)
        table = Table()
        table.alter(rng)
        first = table.look()
        table.alter(rng)
        columns, truth = table.message()
        found = attribute_numbers(columns, first, table.look(), xid=99)
        known += found == truth
        total += 1
    assert known > 0.9 * total


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["id", "a", "b", "c"], (1, 2, 3, 4)), (["id", "c", "b", "a"], (1, 2, 3, 4))],
    ids=["before the swap", "after it"],
)
def test_swapped_names_do_not_exchange_columns(names: list[str], expected: tuple[int, ...]) -> None:
    before = Sighting(1, tuple(SeenColumn(n, name, 23, -1, 1, True) for n, name in enumerate(["id", *"abc"], 1)), 1)
    after = Sighting(
        1,
        tuple(SeenColumn(n, name, 23, -1, 9 if name in "ac" else 1, True) for n, name in enumerate(["id", *"cba"], 1)),
        1,
    )
    assert attribute_numbers([NamedColumn(name, 23, -1) for name in names], before, after, xid=5) == expected


def test_a_column_dropped_and_added_again_is_in_doubt() -> None:
    before = Sighting(1, (SeenColumn(1, "id", 23, -1, 1, True), SeenColumn(2, "b", 25, -1, 1, True)), 1)
    gone = SeenColumn(2, "", 0, -1, 9, False, dropped=True)
    after = Sighting(1, (before.columns[0], gone, SeenColumn(3, "b", 25, -1, 9, True)), 1)
    assert attribute_numbers([NamedColumn("id", 23, -1), NamedColumn("b", 25, -1)], before, after, xid=5) is None


def test_another_publication_in_between_is_in_doubt() -> None:
    before = Sighting(1, (SeenColumn(1, "id", 23, -1, 1, True),), 1, publication="1")
    after = replace(before, publication="2")
    assert attribute_numbers([NamedColumn("id", 23, -1)], before, after, xid=5) is None
