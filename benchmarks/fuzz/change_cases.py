"""Runs the cases of replication streams: each gives transactions or is refused, in time, and never lies."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.fuzz.cases import (
    CASES_PER_STREAM,
    ENDLESS_SECONDS,
    MOST_FAILURES,
    SLOW_SECONDS,
    Failure,
    FuzzReport,
    Outcome,
    Slowest,
)
from benchmarks.fuzz.change_damage import CHANGE_DAMAGES, DamagedChanges
from benchmarks.fuzz.change_roads import ChangeReading, Decoded, Key, expected_tables, random_change_reading
from benchmarks.fuzz.change_stream import ChangeStream, random_change_stream
from benchmarks.fuzz.limit import processor_limit
from benchmarks.fuzz.roads import BrokenPromiseError
from walrelay.errors import BadBytesError, SourceError, WalrelayError, from_text

ROAD = "changes"


class ChangeBase:
    """A good stream that several cases damage, and what is in it."""

    def __init__(self, stream: ChangeStream) -> None:
        self.stream = stream
        self.tables = expected_tables(stream.committed)

    def rows_before(self, at: int) -> dict[Key, int]:
        """Of each table, how many changes are of transactions that end before `at`."""
        counts = dict.fromkeys(self.tables, 0)
        for txn in self.stream.committed:
            if txn.end <= at:
                for change in txn.changes:
                    counts[(change.shape.id, change.shape.name)] += 1
        return counts

    def messages_before(self, at: int) -> list[tuple[bytes, bytes]]:
        return [(prefix, content) for end, prefix, content in self.stream.messages if end <= at]


def run_change_cases(
    count: int, seed: int, *, first: int = 0, begin_case: Callable[[int], None] = lambda case: None
) -> FuzzReport:
    """Run the cases `first` … `first + count - 1` of a seed; each depends on the seed and its number alone."""
    report = FuzzReport(seed)
    directory = Path(tempfile.mkdtemp(prefix="walrelay-fuzz-spill-"))
    try:
        _compile_kernels(directory)
        base: ChangeBase | None = None
        for case in range(first, first + count):
            begin_case(case)
            if base is None or case % CASES_PER_STREAM == 0:
                base = ChangeBase(random_change_stream(Random(f"{seed}/{case // CASES_PER_STREAM}")))
            _run_case(case, Random(f"{seed}:{case}"), base, report, directory)
            if len(report.failures) >= MOST_FAILURES:
                break
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return report


def describe_change_case(case: int, seed: int) -> tuple[str, str]:
    """(damage, road) of a case that could not tell itself."""
    return Random(f"{seed}:{case}").choice(CHANGE_DAMAGES).__name__, ROAD


def _compile_kernels(directory: Path) -> None:
    """Read some good streams, so that no case is slow for being the first."""
    reading = ChangeReading(0, 65_536, 65_536, 1000, 1000, 1000)
    for number in range(30):
        reading.read(bytes(random_change_stream(Random(f"kernels {number}")).data), directory)


def _run_case(case: int, rng: Random, base: ChangeBase, report: FuzzReport, directory: Path) -> None:
    damage = rng.choice(CHANGE_DAMAGES)
    damaged = damage(rng, base.stream)
    reading = random_change_reading(rng)
    outcome: Outcome
    try:
        with processor_limit(ENDLESS_SECONDS):
            begun = time.process_time()
            decoded = reading.read(damaged.data, directory)
            seconds = time.process_time() - begun
            outcome = _judge(base, damaged, decoded)
            if seconds > report.slowest.seconds:
                slowest = _measure(case, damage.__name__, base, reading, damaged.data, directory)
                report.slowest = max(report.slowest, slowest)
    except Exception as error:  # that nothing else comes is what is tested
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        report.failures.append(Failure(case, damage.__name__, ROAD, f"{type(error).__name__}: {error}\n{where}"))
        outcome = "failed"
    report.count(damage.__name__, outcome)


def _measure(case: int, damage: str, base: ChangeBase, reading: ChangeReading, data: bytes, directory: Path) -> Slowest:
    """Time a case that seemed slow once more: the first time may have met the garbage collector, or a compiler."""

    def seconds(some: bytes) -> float:
        begun = time.process_time()
        reading.read(some, directory)
        return time.process_time() - begun

    found = Slowest(seconds(data), seconds(bytes(base.stream.data)), case, damage)
    if found.seconds > SLOW_SECONDS:
        raise BrokenPromiseError(f"took {found.seconds:.1f} s; the good stream takes {found.good_seconds:.4f} s")
    return found


def _judge(base: ChangeBase, damaged: DamagedChanges, decoded: Decoded) -> Outcome:
    """The outcome, if it is one that may be."""
    outcome = _allowed(decoded.error, len(damaged.data))
    if damaged.harmless and outcome != "rows":
        raise BrokenPromiseError(f"a good stream was refused: {decoded.error!r}")
    if damaged.certain and outcome == "rows" and not decoded.waiting:
        raise BrokenPromiseError("damage that cannot be missed was missed")
    unharmed = base.rows_before(damaged.first)
    for key, expected in base.tables.items():
        got, count = decoded.table(key, expected.schema), unharmed[key]
        if damaged.harmless and len(got) != count:
            raise BrokenPromiseError(f"{len(got)} changes instead of {count}")
        if outcome == "rows" and len(got) < count:
            raise BrokenPromiseError(f"{len(got)} changes, but {count} were not damaged")
        count = min(count, len(got))
        if not got.slice(0, count).equals(expected.slice(0, count)):
            raise BrokenPromiseError("changes that were not damaged came out differently")
    said = base.messages_before(damaged.first)
    got_messages = decoded.messages if damaged.harmless else decoded.messages[: len(said)]
    if got_messages != said[: len(got_messages)] or (outcome == "rows" and len(got_messages) < len(said)):
        raise BrokenPromiseError("messages that were not damaged came out differently")
    return outcome


def _allowed(error: WalrelayError | None, size: int) -> Outcome:
    match error:
        case None:
            return "rows"
        case BadBytesError():
            if type(error.position) is not int or not 0 <= error.position <= size:
                raise BrokenPromiseError(f"position {error.position!r} in a stream of {size} bytes: {error.reason}")
            again = from_text(error.to_text())
            if not isinstance(again, BadBytesError) or again.position != error.position:
                raise BrokenPromiseError(f"the error does not survive as text: {error.context}")
            return "refused"
        case SourceError():
            # The damage looks like the server's own complaint.
            return "refused"
        case _:
            raise BrokenPromiseError(f"an error that must not come here: {error!r}")
