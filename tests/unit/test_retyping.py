"""Which changes of a column's type keep every value."""

from __future__ import annotations

import pytest

from walrelay.model.retyping import keeps_values


def numeric(digits: int, scale: int) -> str:
    return f"1700:{(digits << 16 | scale) + 4}"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("1043:14", "1043:24"),
        ("1043:14", "1043:-1"),
        ("1043:14", "25:-1"),
        ("25:-1", "1043:-1"),
        ("1114:0", "1114:6"),
        ("1184:3", "1184:-1"),
        (numeric(6, 2), numeric(10, 2)),
        ("23:-1", "23:-1"),
    ],
)
def test_a_wider_limit_keeps_values(before: str, now: str) -> None:
    assert keeps_values(before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("1043:24", "1043:14"),
        ("25:-1", "1043:14"),
        ("1042:7", "1042:14"),
        ("1042:7", "1043:-1"),
        ("114:-1", "3802:-1"),
        ("1114:6", "1114:0"),
        ("1114:-1", "1114:0"),
        ("23:-1", "20:-1"),
        ("23:-1", "26:-1"),
        ("25:-1", "869:-1"),
        ("650:-1", "869:-1"),
        (numeric(6, 2), numeric(6, 1)),
        (numeric(6, 2), "1700:-1"),
        ("1700:-1", numeric(6, 2)),
    ],
)
def test_what_pads_cuts_rounds_or_may_compute_does_not(before: str, now: str) -> None:
    assert not keeps_values(before, now)
