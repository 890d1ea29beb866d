"""A table's copy as one Spark job: a task per range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from walrelay.changes.rows import LandedFile
from walrelay.changes.spark_failures import as_text, insist, spark_failures
from walrelay.errors import SparkLostError
from walrelay.model.ranges import CtidRange
from walrelay.model.special import Special
from walrelay.spark.copy_task import CopyTask, RangeResult, land_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_SECONDS = 0.5
"""Between two attempts to cancel copies: one may have been about to begin its job."""


@dataclass(frozen=True, slots=True)
class JobName:
    """By what a copy's job is known in a Spark that others use too."""

    run: str
    """All copies of a run are cancelled together, and nothing else is."""
    pipeline: str

    @property
    def tag(self) -> str:
        return run_tag(self.run)

    def describe(self, table: object) -> str:
        """What Spark's pages show."""
        return f"walrelay {self.pipeline}: copy {table}"


def run_tag(run: str) -> str:
    return f"walrelay-copy-{run}"


@dataclass(frozen=True, slots=True)
class LandedCopy:
    """All ranges of a table, landed."""

    files: tuple[LandedFile, ...]
    rows: int
    treated: Counter[Special]


def run_copy_job(spark: SparkSession, task: CopyTask, ranges: Sequence[CtidRange], name: JobName) -> LandedCopy:
    """Copy all ranges; fails as a whole, with the error of the task that failed.

    A plain RDD carries the work: what travels is a pickled closure and not a source's options, which Spark prints in
    plans (docs/decisions/0002).
    """

    def land(parts: Iterable[CtidRange]) -> Iterator[RangeResult]:
        for part in parts:
            with as_text():
                yield land_range(task, part)

    if not ranges:
        return LandedCopy((), 0, Counter())  # a partitioned table without partitions; Spark knows no job without tasks
    with spark_failures(f"copying {task.schema.name}"), _tagged(spark, name, task):
        results = spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(land).collect()
    treated: Counter[Special] = Counter()
    for result in results:
        treated.update({Special[name]: count for name, count in result.treated.items()})
    files = tuple(file for result in results for file in result.files)
    return LandedCopy(files, sum(result.rows for result in results), treated)


@contextmanager
def _tagged(spark: SparkSession, name: JobName, task: CopyTask) -> Iterator[None]:
    """For the jobs of this thread."""
    context = spark.sparkContext
    context.setJobDescription(name.describe(task.schema.name))
    context.addJobTag(name.tag)
    try:
        yield
    finally:
        with suppress(Exception):  # a Spark that is gone has no tags
            context.removeJobTag(name.tag)


def cancel_copies(spark: SparkSession | None, run: str, copies: Collection[Future[Any]]) -> None:
    """Cancel what these copies of a run do in Spark, until all of them have ended. Jobs of others go on."""
    left = {copy for copy in copies if not copy.done()}
    while left:
        with suppress(SparkLostError):
            if spark is not None:
                insist("cancelling copies", partial(spark.sparkContext.cancelJobsWithTag, run_tag(run)))
        left = wait(left, CANCEL_SECONDS).not_done
