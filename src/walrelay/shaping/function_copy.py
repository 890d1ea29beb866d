"""A function on DataFrames, applied to a table's copy: the files that tasks have landed become others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.rows import LandedFile
from walrelay.changes.spark_dialect import columns_ddl
from walrelay.decode.base import ARROW, Tally, Target
from walrelay.decode.retarget import retarget_batch
from walrelay.decode.table import arrow_schema
from walrelay.destinations.landing import Landing
from walrelay.shaping.failures import TransformFailedError
from walrelay.shaping.function_log import naming
from walrelay.shaping.function_plan import FunctionPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def function_applied(
    spark: SparkSession,
    plan: FunctionPlan,
    files: tuple[LandedFile, ...],
    directory: Path,
    target: Target,
    file_bytes: int,
    *,
    kept: bool,
) -> tuple[LandedFile, ...]:
    """The same rows, as the function makes them, for `target`. `files` hold them in Spark's types. With `kept` the
    files stay, in a lake, which knows those that tasks land: Spark leaves out what a lake says of a file."""
    if not files:
        return ()
    place = directory / "applied"
    with naming(plan):
        rows = spark.read.schema(columns_ddl(plan.before.columns)).parquet(*(file.path for file in files))
        plan.apply(rows).write.parquet(str(place))
        made = tuple(_landed(path) for path in sorted(place.glob("*.parquet")))
        before, after = sum(file.rows for file in files), sum(file.rows for file in made)
        if before != after:
            raise TransformFailedError(f"the function {plan.transform.name} makes {after} rows of {before}")
    for file in files:
        Path(file.path).unlink(missing_ok=True)
    if kept or arrow_schema(plan.after, target) != arrow_schema(plan.after, ARROW):
        landing = Landing(str(directory), arrow_schema(plan.after, target), file_bytes=file_bytes, kept=kept)
        made = _landed_again(plan, made, landing, target)
    return tuple(file for file in made if file.rows)


def _landed(path: Path) -> LandedFile:
    return LandedFile(str(path), pq.read_metadata(path).num_rows, path.stat().st_size)


def _landed_again(
    plan: FunctionPlan, files: tuple[LandedFile, ...], landing: Landing, target: Target
) -> tuple[LandedFile, ...]:
    """For a destination that has another form than Spark for some of its types, or keeps the files."""
    tally = Tally(target, "null")
    try:
        for batch in _batches(plan, files):
            landing.write(retarget_batch(batch, plan.after, tally))
        return tuple(landing.files())
    except BaseException:
        landing.abandon()
        raise


def _batches(plan: FunctionPlan, files: tuple[LandedFile, ...]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(plan.after, ARROW)
    for file in files:
        with pq.ParquetFile(file.path) as parquet:
            for batch in parquet.iter_batches():
                columns = [batch.column(one.name).cast(one.type) for one in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
