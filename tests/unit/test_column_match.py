"""Which column of one shape is which of another."""

from __future__ import annotations

from collections.abc import Sequence

from walrelay.model.column_match import match_columns
from walrelay.model.schema import Column, PgType

INT = PgType(23, "int4")


def columns(*described: str) -> Sequence[Column]:
    """`name#number`; without a number it is not known."""
    parts = (one.partition("#") for one in described)
    return [Column(name, INT, attnum=int(number or 0)) for name, _, number in parts]


def found(wanted: Sequence[Column], others: Sequence[Column]) -> list[str | None]:
    matched = match_columns(wanted, others)
    assert not matched.doubts
    return [None if place is None else others[place].name for place in matched.places]


def test_a_column_is_its_number() -> None:
    assert found(columns("id#1", "price#2"), columns("id#1", "paid#2")) == ["id", "paid"]
    assert found(columns("b#1", "a#2"), columns("a#1", "b#2")) == ["a", "b"]
    assert found(columns("id#1", "note#3"), columns("id#1", "note#2")) == ["id", None]


def test_without_a_number_a_column_is_its_name() -> None:
    assert found(columns("id", "note"), columns("id", "at")) == ["id", None]
    assert found(columns("id#1", "note#2"), columns("id", "note")) == ["id", "note"]
    assert found(columns("id", "note"), columns("id#1", "note#2")) == ["id", "note"]


def test_a_name_that_the_order_of_columns_contradicts_is_another_column() -> None:
    """`v` stood between the first and the third; the one that has the name now is the fourth."""
    assert found(columns("id#1", "last#3", "v#4"), columns("id#1", "v", "last#3")) == ["id", "last", None]


def test_a_column_that_is_taken_by_number_is_not_found_by_name() -> None:
    """`a` became `b`, and a new `a` came: nobody knows its number, but it is not the old one."""
    assert found(columns("b#1", "a"), columns("a#1")) == ["a", None]


def test_what_may_be_a_rename_and_may_not_is_in_doubt() -> None:
    matched = match_columns(columns("id#1", "price#2"), columns("id#1", "paid"))
    assert (matched.places, matched.doubts) == ((0, None), ((1, 1),))


def test_a_column_that_came_after_all_that_were_there_is_not_in_doubt() -> None:
    assert found(columns("id#1", "paid#3", "note#4"), columns("id#1", "at", "paid#3")) == ["id", "paid", None]


def test_a_column_that_is_no_more_is_not_in_doubt() -> None:
    assert found(columns("id#1"), columns("id#1", "gone")) == ["id"]
