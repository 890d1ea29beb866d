"""Runs the cases: each must give rows or be refused, in time, and never lie where it could know."""

from __future__ import annotations

import time
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

import pyarrow as pa

from benchmarks.fuzz.damage import DAMAGES, Damaged
from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.limit import processor_limit
from benchmarks.fuzz.roads import BrokenPromiseError, Reading, random_reading
from benchmarks.fuzz.stream import ROADS, Road, Stream, build_stream, random_stream
from walrelay.changes.spark_dialect import SPARK
from walrelay.decode.base import ARROW, TEXT
from walrelay.decode.table import arrow_schema
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.errors import BadBytesError, SourceError, SpecialValueError, WalrelayError, from_text

TARGETS = (ARROW, DUCKDB, SPARK, TEXT)
CASES_PER_STREAM = 20
SLOW_SECONDS = 2.0
"""Of processor time, for a stream of some kilobytes: as good as a hang."""
ENDLESS_SECONDS = 10.0
MOST_FAILURES = 50

Outcome = Literal["rows", "refused", "special", "failed"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that did what it must not do; `run_cases(1, seed, first=case)` does it again."""

    case: int
    damage: str
    road: str
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class Slowest:
    """The case that took longest, and what its undamaged stream takes when read in the same way."""

    seconds: float = 0.0
    good_seconds: float = 0.0
    case: int = -1
    damage: str = ""


@dataclass
class FuzzReport:
    """What became of the cases."""

    seed: int
    cases: int = 0
    outcomes: dict[str, Counter[Outcome]] = field(default_factory=dict)
    """By damage."""
    failures: list[Failure] = field(default_factory=list)
    slowest: Slowest = field(default_factory=Slowest)

    @property
    def ok(self) -> bool:
        return not self.failures

    def count(self, damage: str, outcome: Outcome) -> None:
        self.cases += 1
        self.outcomes.setdefault(damage, Counter())[outcome] += 1

    def add(self, other: FuzzReport) -> None:
        """Take in the report of other cases."""
        self.cases += other.cases
        for damage, outcomes in other.outcomes.items():
            self.outcomes.setdefault(damage, Counter()).update(outcomes)
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)


class Base:
    """A good stream that several cases damage."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._good: dict[tuple[str, str], pa.Table | None] = {}

    def good_rows(self, reading: Reading) -> pa.Table | None:
        """What the undamaged stream gives; None when it holds values that the reading's policy refuses."""
        key = (reading.target.name, reading.special_values)
        if key not in self._good:
            calm = replace(reading, capacity=65_536, step=65_536, confined=False)
            result = read(calm, bytes(self.stream.data))
            self._good[key] = result.table if result.error is None else None
        return self._good[key]


@dataclass(frozen=True, slots=True)
class Result:
    """What reading a stream gave: rows, and maybe the error that ended it."""

    table: pa.Table
    error: WalrelayError | None
    seconds: float
    """Of processor time, so that a busy machine does not count."""


def read(reading: Reading, data: bytes) -> Result:
    """Read to the end, or to an error of the kinds that are allowed."""
    batches, failure = [], None
    begun = time.process_time()
    try:
        for batch in reading.batches(data):
            batch.validate(full=True)
            # A copy: a batch is good until the next is asked for.
            batches.append(pa.ipc.read_record_batch(batch.serialize(), batch.schema))
    except (BadBytesError, SpecialValueError, SourceError) as error:
        failure = error
    seconds = time.process_time() - begun
    return Result(pa.Table.from_batches(batches, arrow_schema(reading.schema, reading.target)), failure, seconds)


def run_cases(
    count: int, seed: int, *, first: int = 0, begin_case: Callable[[int], None] = lambda case: None
) -> FuzzReport:
    """Run the cases `first` … `first + count - 1` of a seed; each depends on the seed and its number alone.

    `begin_case` is told the number before each case, so that a crash can be traced.
    """
    report = FuzzReport(seed)
    compile_kernels()
    base: Base | None = None
    for case in range(first, first + count):
        begin_case(case)
        if base is None or case % CASES_PER_STREAM == 0:
            base = Base(random_stream(Random(f"{seed}/{case // CASES_PER_STREAM}")))
        _run_case(case, Random(f"{seed}:{case}"), base, report)
        if len(report.failures) >= MOST_FAILURES:
            break
    return report


def describe_case(case: int, seed: int) -> tuple[str, Road]:
    """(damage, road) of a case that could not tell itself."""
    damage = Random(f"{seed}:{case}").choice(DAMAGES)
    return damage.__name__, random_stream(Random(f"{seed}/{case // CASES_PER_STREAM}")).road


def compile_kernels() -> None:
    """Read a row of every type for every target, so that no case is slow for being the first."""
    rng = Random("kernels")
    rows: list[list[bytes | None]] = [[kind.make(rng) for kind in KINDS] for _ in range(2)]
    for road in ROADS:
        stream = build_stream(list(KINDS), rows, road)
        for target in TARGETS:
            read(Reading(stream.schema, road, target, "null", capacity=65_536, step=65_536), bytes(stream.data))


def _run_case(case: int, rng: Random, base: Base, report: FuzzReport) -> None:
    damage = rng.choice(DAMAGES)
    damaged = damage(rng, base.stream)
    reading = random_reading(rng, base.stream.schema, base.stream.road, TARGETS)
    outcome: Outcome
    try:
        with processor_limit(ENDLESS_SECONDS):
            result = read(reading, damaged.data)
            outcome = _judge(base, damaged, reading, result)
            if result.seconds > report.slowest.seconds and not reading.confined:
                report.slowest = max(report.slowest, _measure(case, damage.__name__, base, reading, damaged.data))
    except Exception as error:  # that nothing else comes is what is tested
        where = "".join(traceback.format_tb(error.__traceback__)[-2:])
        reason = f"{type(error).__name__}: {error}\n{where}"
        report.failures.append(Failure(case, damage.__name__, reading.road, reason))
        outcome = "failed"
    report.count(damage.__name__, outcome)


def _measure(case: int, damage: str, base: Base, reading: Reading, data: bytes) -> Slowest:
    """Time a case that seemed slow once more: the first time may have met the garbage collector, or a compiler."""
    found = Slowest(read(reading, data).seconds, read(reading, bytes(base.stream.data)).seconds, case, damage)
    if found.seconds > SLOW_SECONDS:
        raise BrokenPromiseError(f"took {found.seconds:.1f} s; the good stream takes {found.good_seconds:.4f} s")
    return found


def _judge(base: Base, damaged: Damaged, reading: Reading, result: Result) -> Outcome:
    """The outcome, if it is one that may be."""
    outcome = _allowed(result.error, reading, len(damaged.data))
    if damaged.certain and outcome == "rows":
        raise BrokenPromiseError("damage that cannot be missed was missed")
    good = base.good_rows(reading)
    if good is None:
        return outcome
    expected = base.stream.rows
    if damaged.data == base.stream.data and (outcome != "rows" or len(result.table) != expected):
        raise BrokenPromiseError(f"a good stream of {expected} rows gave {len(result.table)} and {result.error!r}")
    unharmed = min(bisect_right(base.stream.row_ends, damaged.first), len(result.table))
    if not result.table.slice(0, unharmed).equals(good.slice(0, unharmed)):
        raise BrokenPromiseError("rows that were not damaged came out differently")
    return outcome


def _allowed(error: WalrelayError | None, reading: Reading, size: int) -> Outcome:
    match error:
        case None:
            return "rows"
        case BadBytesError():
            if type(error.position) is not int or not 0 <= error.position <= size:
                raise BrokenPromiseError(f"position {error.position!r} in a stream of {size} bytes: {error.reason}")
            again = from_text(error.to_text())
            if not isinstance(again, BadBytesError) or (again.position, again.context) != (
                error.position,
                error.context,
            ):
                raise BrokenPromiseError(f"the error does not survive as text: {error.context}")
            return "refused"
        case SpecialValueError() if reading.special_values == "error":
            return "special"
        case SourceError() if reading.road == "socket":
            # The connection ended too early, or the damage looks like the server's own complaint.
            return "refused"
        case _:
            raise BrokenPromiseError(f"an error that must not come here: {error!r}")
