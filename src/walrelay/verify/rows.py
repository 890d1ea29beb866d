"""Rows of both sides, compared one by one: those that differ, by key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from walrelay.destinations.verifying import HashedRow, KeyRanges
from walrelay.model.schema import Column
from walrelay.verify.gap import Gap
from walrelay.verify.report import Difference, Kind, Values


@dataclass
class Compared:
    """What came of some ranges."""

    differences: list[Difference] = field(default_factory=list)
    suspects: set[int] = field(default_factory=set)
    """Keys whose row is not what the log tells: to be looked at again, with the source's own row."""
    treated: int = 0
    """Rows that differ only in values which policy treats."""


def compare_rows(
    columns: tuple[Column, ...],
    key: tuple[Column, ...],
    there: Iterable[tuple[HashedRow, frozenset[int]]],
    here: Iterable[HashedRow],
    gap: Gap,
    ranges: KeyRanges,
    is_last: bool,
) -> Compared:
    """The source's rows `there`, with what the log tells, against the destination's. Without the keys of `gap.told` and
    `gap.pending` there, without the latter here. `key` is empty where rows may be equal. Suspects of the last round are
    differences."""
    expected: dict[int, Counter[int]] = defaultdict(Counter)
    actual: dict[int, Counter[int]] = defaultdict(Counter)
    source: dict[int, HashedRow] = {}
    special: dict[int, frozenset[int]] = {}
    destination: dict[int, HashedRow] = {}
    for row, places in there:
        expected[row.key][row.row] += 1
        source[row.key], special[row.key] = row, places
    for (row_key, row_hash), count in gap.rows.items():
        if ranges.asks_for(row_key):
            expected[row_key][row_hash] += count
    for row in here:
        actual[row.key][row.row] += 1
        destination[row.key] = row
    found = Compared()
    names = {column.name for column in key}
    for one in sorted(expected.keys() | actual.keys()):
        wanted, held = +expected[one], actual[one]
        if wanted == held:
            continue
        if one in gap.told and not is_last:
            found.suspects.add(one)
            continue
        mine, theirs = source.get(one), destination.get(one)
        differing = _differing(mine, theirs)
        if wanted.total() == held.total() == 1 and differing and special[one].issuperset(differing):
            found.treated += 1
            continue
        kind: Kind = "changed" if wanted.total() == held.total() else "missing"
        kind = "extra" if held.total() > wanted.total() else kind
        found.differences.append(
            Difference(
                kind,
                _key(columns, mine or theirs, names),
                one,
                tuple(columns[i].name for i in differing) if kind == "changed" else (),
                _values(columns, mine),
                _values(columns, theirs),
                wanted.total(),
                held.total(),
            )
        )
    return found


def _differing(mine: HashedRow | None, theirs: HashedRow | None) -> list[int]:
    """Places of the columns whose values differ."""
    if mine is None or theirs is None:
        return []
    return [i for i, (a, b) in enumerate(zip(mine.values, theirs.values, strict=True)) if a != b]


def _values(columns: tuple[Column, ...], row: HashedRow | None) -> Values | None:
    return None if row is None else {one.name: value for one, value in zip(columns, row.printed, strict=True)}


def _key(columns: tuple[Column, ...], row: HashedRow | None, names: set[str]) -> Values:
    return {name: value for name, value in (_values(columns, row) or {}).items() if name in names}
