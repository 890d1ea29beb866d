"""Damaged COPY streams, the first few of those that `python -m benchmarks fuzz` runs by the hundred thousand."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.fuzz.cases import run_cases
from benchmarks.fuzz.damage import DAMAGES
from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.stream import random_stream
from walrelay.decode.registry import BUILTIN, EXTENSION, KIND

SEED = 1


@pytest.mark.timeout(600)  # without a cache, all kernels are compiled first
def test_damaged_streams_give_rows_or_bad_bytes_and_nothing_else() -> None:
    report = run_cases(1_000, SEED)
    assert report.failures == []
    assert report.cases == 1_000
    assert {damage.__name__ for damage in DAMAGES} == set(report.outcomes)


def test_every_type_with_a_decoder_is_fuzzed() -> None:
    base = [kind.type for kind in KINDS if kind.type.kind == "base"]
    # All registered object identifiers share the decoder of oid.
    plain = {name for name in BUILTIN if not name.startswith("reg")}
    assert plain <= {type_.name for type_ in base if type_.extension is None}
    assert set(EXTENSION) <= {(type_.extension, type_.name) for type_ in base}
    assert set(KIND) == {kind.type.kind for kind in KINDS} - {"base"}


def test_a_case_is_the_same_each_time() -> None:
    assert random_stream(Random("a")).data == random_stream(Random("a")).data
    again = [run_cases(20, SEED, first=40).outcomes for _ in range(2)]
    assert again[0] == again[1]
