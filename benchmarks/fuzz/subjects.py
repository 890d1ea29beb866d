"""What is fuzzed: the copy's road and the road of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.fuzz.cases import FuzzReport, describe_case, run_cases
from benchmarks.fuzz.change_cases import describe_change_case, run_change_cases

SubjectName = Literal["copy", "changes"]


class RunCases(Protocol):
    """Runs the cases `first` … `first + count - 1` of a seed, and tells `begin_case` each number before it begins."""

    def __call__(
        self, count: int, seed: int, *, first: int = 0, begin_case: Callable[[int], None] = ...
    ) -> FuzzReport: ...


@dataclass(frozen=True, slots=True)
class Subject:
    title: str
    run: RunCases
    describe: Callable[[int, int], tuple[str, str]]
    """(damage, road) of a case of a seed."""


SUBJECTS: dict[SubjectName, Subject] = {
    "copy": Subject("Damaged COPY streams", run_cases, describe_case),
    "changes": Subject("Damaged replication streams", run_change_cases, describe_change_case),
}
