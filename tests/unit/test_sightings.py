"""The looks at the catalog that a log keeps, and what they say of a Relation message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from walrelay.capture import sightings as sightings_module
from walrelay.capture.column_numbers import ColumnNumbers
from walrelay.capture.sightings import SightingBook, Told
from walrelay.log.storage import Storage, open_storage
from walrelay.model.lsn import Lsn
from walrelay.model.sightings import LookTime, NamedColumn, SeenColumn, Sighting
from walrelay.wire.pgoutput import Relation, RelationColumn

TABLE = 7


def sighting(*names: str, by: int = 1, trigger: str = "", dropped: Sequence[int] = ()) -> Sighting:
    columns = tuple(
        SeenColumn(number, name, 25, -1, by, sent=number not in dropped, dropped=number in dropped)
        for number, name in enumerate(names, 1)
    )
    return Sighting(TABLE, columns, made_by=1, trigger=trigger)


def at(lsn: int, visible: str = "100:100:") -> LookTime:
    return LookTime(Lsn(lsn), Lsn(lsn + 1), visible)


def relation(*names: str) -> Relation:
    columns = tuple(RelationColumn(name, 25, -1, key=False) for name in names)
    return Relation(TABLE, "public", "t", "d", columns)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "log")


def test_looks_are_there_for_the_next_writer(storage: Storage) -> None:
    book = SightingBook(storage, Lsn(0))
    book.seen([sighting("id", "a")], at(10))
    book.seen([sighting("id", "a")], at(20))
    book.seen([sighting("id", "b", by=2)], at(30))
    again = SightingBook(storage, Lsn(0))
    before, after = again.before(TABLE, Lsn(25)), again.after(TABLE, Lsn(25), 50)
    assert before is not None and before.sighting == sighting("id", "a")
    assert after is not None and after.sighting == sighting("id", "b", by=2)


def test_a_commit_between_the_ends_of_a_look_has_that_look_on_neither_side(storage: Storage) -> None:
    book = SightingBook(storage, Lsn(0))
    book.seen([sighting("id")], LookTime(Lsn(10), Lsn(20), "100:100:"))
    assert book.before(TABLE, Lsn(15)) is None
    assert book.after(TABLE, Lsn(15), 50) is None


def test_a_look_that_has_not_seen_the_transaction_is_not_after_it(storage: Storage) -> None:
    """Its commit was in the WAL, but what it altered itself was not visible yet."""
    book = SightingBook(storage, Lsn(0))
    book.seen([sighting("id")], at(10, visible="50:60:50"))
    assert book.after(TABLE, Lsn(5), 50) is None
    assert book.after(TABLE, Lsn(5), 49) is not None


def test_older_looks_are_forgotten_and_many_files_become_one(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings_module, "MANY_FILES", 4)
    book = SightingBook(storage, Lsn(0))
    for number in range(1, 9):
        book.seen([sighting("id", f"a{number}", by=number)], at(10 * number))
        book.told(Told(TABLE, Lsn(10 * number + 5), ((1, NamedColumn("id", 25, -1)),)))
        book.forget(Lsn(10 * number))
    assert len(storage.list(sightings_module.SIGHTINGS)) < 8
    again = SightingBook(storage, Lsn(1000))
    before, told = again.before(TABLE, Lsn(1000)), again.last_told(TABLE)
    assert before is not None and before.sighting.columns[1].name == "a8"
    assert told is not None and told.lsn == Lsn(85)


def test_what_was_told_behind_the_logs_end_is_told_again(storage: Storage) -> None:
    book = SightingBook(storage, Lsn(0))
    book.told(Told(TABLE, Lsn(10), (), 40))
    book.told(Told(TABLE, Lsn(30), (), 41))
    assert SightingBook(storage, Lsn(20)).last_told(TABLE) == Told(TABLE, Lsn(10), (), 40)


class Catalog:
    """What a look finds, and how often one was taken."""

    def __init__(self, *looks: tuple[Sighting, LookTime]) -> None:
        self._looks = list(looks)
        self.taken = 0

    def __call__(self, tables: Sequence[int] | None) -> tuple[list[Sighting], LookTime]:
        self.taken += 1
        found, time = self._looks.pop(0)
        return [found], time


def test_a_table_that_nobody_touches_is_certain(storage: Storage) -> None:
    catalog = Catalog((sighting("id", "a"), at(10)), (sighting("id", "a"), at(30)))
    numbers = ColumnNumbers(SightingBook(storage, Lsn(0)), catalog)
    assert numbers.of(relation("id", "a"), Lsn(20), 50) == (1, 2)
    assert numbers.of(relation("id", "a"), Lsn(25), 51) == (1, 2)
    assert catalog.taken == 2, "the look from after the first message serves the second"


def test_with_the_trigger_its_last_word_decides(storage: Storage) -> None:
    """Without it, drop and add under one name could not be told from nothing."""
    before, after = sighting("id", "b", trigger="t"), sighting("id", "", "b", by=9, trigger="t", dropped=[2])
    catalog = Catalog((before, at(10)), (after, at(50)))
    numbers = ColumnNumbers(SightingBook(storage, Lsn(0)), catalog)
    assert numbers.of(relation("id", "b"), Lsn(20), 40) == (1, 2)
    told = ((1, NamedColumn("id", 25, -1)), (3, NamedColumn("b", 25, -1)))
    numbers.told(Told(TABLE, Lsn(30), told, 41))
    assert numbers.of(relation("id", "b"), Lsn(40), 42) == (1, 3)


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_trigger_that_was_not_there_all_the_time_is_not_trusted(storage: Storage, which: str) -> None:
    before, after = sighting("id", "b", trigger="t"), sighting("id", "", "b", by=9, trigger="t", dropped=[2])
    before, after = (replace(before, trigger=""), after) if which == "before" else (before, replace(after, trigger=""))
    numbers = ColumnNumbers(SightingBook(storage, Lsn(0)), Catalog((before, at(10)), (after, at(50))))
    assert numbers.of(relation("id", "b"), Lsn(20), 40) is None


def test_a_trigger_that_failed_is_not_trusted_until_the_next_look(storage: Storage) -> None:
    before, after = sighting("id", "b", trigger="t"), sighting("id", "", "b", by=9, trigger="t", dropped=[2])
    numbers = ColumnNumbers(SightingBook(storage, Lsn(0)), Catalog((before, at(10)), (after, at(50))))
    numbers.distrust(Lsn(15), 30)
    assert numbers.of(relation("id", "b"), Lsn(20), 40) is None


@pytest.mark.parametrize("failed", [False, True])
def test_a_commit_that_was_written_but_not_visible_is_not_in_the_look(storage: Storage, failed: bool) -> None:
    """A look between the two saw the table as it was before, at a position behind the commit's."""
    before, after = sighting("id", "b", trigger="t"), sighting("id", "", "b", by=45, trigger="t", dropped=[2])
    catalog = Catalog((before, at(35, visible="45:50:45")), (after, at(50)))
    numbers = ColumnNumbers(SightingBook(storage, Lsn(0)), catalog)
    if failed:
        numbers.distrust(Lsn(30), 45)
    else:
        told = ((1, NamedColumn("id", 25, -1)), (3, NamedColumn("b", 25, -1)))
        numbers.told(Told(TABLE, Lsn(30), told, 45))
    assert numbers.of(relation("id", "b"), Lsn(40), 51) == (None if failed else (1, 3))
