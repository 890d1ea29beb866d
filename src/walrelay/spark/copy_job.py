"""A table's copy as one Spark job: a task per range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walrelay.destinations.base import LandedFile
from walrelay.model.special import Special
from walrelay.postgres.ranges import CtidRange
from walrelay.spark.copy_task import CopyTask, RangeResult, land_range
from walrelay.spark.failures import as_text, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LandedCopy:
    """All ranges of a table, landed."""

    files: tuple[LandedFile, ...]
    rows: int
    treated: Counter[Special]


def run_copy_job(spark: SparkSession, task: CopyTask, ranges: Sequence[CtidRange]) -> LandedCopy:
    """Copy all ranges; fails as a whole, with the error of the task that failed.

    A plain RDD carries the work: what travels is a pickled closure and not a source's options, which Spark prints in
    plans (docs/decisions/0002).
    """

    def land(parts: Iterable[CtidRange]) -> Iterator[RangeResult]:
        for part in parts:
            with as_text():
                yield land_range(task, part)

    with spark_failures(f"copying {task.schema.name}"):
        results = spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(land).collect()
    treated: Counter[Special] = Counter()
    for result in results:
        treated.update({Special[name]: count for name, count in result.treated.items()})
    files = tuple(file for result in results for file in result.files)
    return LandedCopy(files, sum(result.rows for result in results), treated)
