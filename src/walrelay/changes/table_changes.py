"""One table's part of a batch, as files, Arrow, single changes, a DataFrame, or what it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from walrelay.changes.steps import SchemaStep, schema_steps
from walrelay.log.manifest import DataFile
from walrelay.log.reader import TableBatch
from walrelay.model.changes import Change
from walrelay.model.lsn import Lsn
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import SpecialValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from walrelay.changes.batch import EventBatch
    from walrelay.changes.frames import TableFrames
    from walrelay.changes.latest import Latest


@dataclass(frozen=True, slots=True)
class TableChanges:
    """A table's files in order, each with the shape its changes have.

    A file may hold more than the batch: take the changes with `after` < `end_lsn` ≤ `to`, and `sees(xid)` false. All
    other ways to look at them do that themselves.
    """

    schema: TableSchema
    """The latest shape in this batch."""
    files: tuple[tuple[SchemaVersion, DataFile], ...]
    after: Lsn
    to: Lsn
    unseen_by: str | None = None
    batch: EventBatch | None = field(default=None, repr=False, compare=False)
    """Of this table alone."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which its changes say which row they mean; none when rows may be equal."""
        return self.schema.key_columns

    @property
    def versions(self) -> tuple[SchemaVersion, ...]:
        """The shapes that its changes have, in order."""
        return tuple({version.version: version for version, _ in self.files}.values())

    @property
    def schema_steps(self) -> tuple[tuple[SchemaStep, ...], ...]:
        """What DDL has done between one of `versions` and the next."""
        return tuple(schema_steps(one.schema, other.schema) for one, other in pairwise(self.versions))

    def arrow(self) -> Iterator[TableBatch]:
        return self._batch.batches()

    def rows(self) -> Iterator[Change]:
        """Single changes in commit order: for simple destinations; slow by nature."""
        return self._batch.changes()

    def dataframe(self, spark: SparkSession | None = None, special_values: SpecialValues = "null") -> DataFrame:
        """The changes, read by Spark's own Parquet reader: op, commit_lsn, ordinal, and with the columns that the table
        has at the end `row` and `old`, in Spark's types; `unchanged` names what was not sent again."""
        return self.frames(spark, special_values).changes()

    def latest(self, spark: SparkSession | None = None, special_values: SpecialValues = "null") -> Latest:
        """What the changes come to, by Spark SQL."""
        from walrelay.changes.latest import latest_of

        return latest_of(self.frames(spark, special_values))

    def frames(self, spark: SparkSession | None = None, special_values: SpecialValues = "null") -> TableFrames:
        """In a session of your own, or in a new one of the pipeline's Spark."""
        from walrelay.changes.frames import TableFrames
        from walrelay.changes.spark_dialect import SPARK
        from walrelay.changes.spark_values import Holding

        if spark is None:
            assert self._batch.spark is not None, "this destination was given no Spark session"
            spark = self._batch.spark().newSession()
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        return TableFrames(spark, self._batch.log.storage, self, Holding(SPARK, special_values))

    def since(self, after: Lsn) -> TableChanges:
        """Without what ends up to there."""
        return replace(self, after=max(self.after, after))

    @property
    def _batch(self) -> EventBatch:
        assert self.batch is not None, "made by EventBatch.tables"
        return self.batch.of_table(self.schema.id, self.after, self.unseen_by)
