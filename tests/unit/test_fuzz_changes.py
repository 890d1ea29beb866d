"""Damaged replication streams, the first few of those that `python -m benchmarks fuzz` runs by the ten thousand."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.fuzz.change_cases import ChangeBase, run_change_cases
from benchmarks.fuzz.change_damage import CHANGE_DAMAGES
from benchmarks.fuzz.change_roads import ChangeReading
from benchmarks.fuzz.change_stream import random_change_stream
from benchmarks.fuzz.kinds import KINDS

SEED = 1


@pytest.mark.timeout(600)  # without a cache, all kernels are compiled first
def test_damaged_streams_give_transactions_or_bad_bytes_and_nothing_else() -> None:
    report = run_change_cases(600, SEED)
    assert report.failures == []
    assert report.cases == 600
    assert {damage.__name__ for damage in CHANGE_DAMAGES} == set(report.outcomes)


def test_a_good_stream_gives_the_same_however_it_is_received(tmp_path: Path) -> None:
    base = ChangeBase(random_change_stream(Random("received")))
    for capacity in (64, 200, 4096, 100_000):
        for step in (1, 50, 100_000):
            decoded = ChangeReading(0, capacity, step, 3, 500, 6).read(bytes(base.stream.data), tmp_path)
            assert decoded.error is None
            for key, expected in base.tables.items():
                assert decoded.table(key, expected.schema).equals(expected)
            assert set(decoded.changes) == set(base.tables)


def test_the_streams_have_everything_in_them() -> None:
    """Each kind of message, of change, and of type; so that nothing is left out by chance."""
    messages, changes, kinds = set(), set(), set()
    for number in range(80):
        stream = random_change_stream(Random(f"{SEED}/{number}"))
        messages |= {chr(stream.data[at + 30]) for at in stream.frames if stream.data[at + 5 : at + 6] == b"w"}
        for change in (change for txn in stream.committed for change in txn.changes):
            changes.add((change.op, change.old_kind))
            kinds |= set(change.shape.kinds)
    assert messages == set("BCIUDTRYOMSEcA")
    assert changes == {
        ("insert", None), ("update", None), ("update", "key"), ("update", "row"), ("delete", "key"),
        ("delete", "row"), ("truncate", None),
    }  # fmt: skip
    assert len(kinds) == len(KINDS)


def test_a_case_is_the_same_each_time() -> None:
    assert random_change_stream(Random("a")).data == random_change_stream(Random("a")).data
    again = [run_change_cases(20, SEED, first=40).outcomes for _ in range(2)]
    assert again[0] == again[1]
