"""Functions on DataFrames, applied to a batch of changes: Spark collapses a table's changes, the function makes rows of
rows, and what the changes come to is written as changes again, in the log's own form."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from walrelay.changes.batch import EventBatch
from walrelay.changes.frame_latest import latest, net
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.spark_dialect import SPARK
from walrelay.changes.spark_values import Holding
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import ARROW
from walrelay.decode.table import arrow_schema
from walrelay.errors import CopyAgainError, SparkLostError, WalrelayError
from walrelay.log.reader import reading_schema
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special
from walrelay.shaping.failures import TransformFailedError
from walrelay.shaping.function_plan import FunctionPlan
from walrelay.shaping.shaping import Shaping
from walrelay.shaping.small_log import SmallLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def functions_applied(
    shaping: Shaping, batch: EventBatch, directory: Path, treated: dict[TableId, Counter[Special]]
) -> EventBatch:
    """The batch with the changes of tables that have a function collapsed and passed through it."""
    small = SmallLog(batch, batch.entries(), directory)
    plans: dict[TableId, FunctionPlan] = {}
    parts = {part.schema.id: part for part in batch.tables()}
    for table, part in parts.items():
        plan = shaping.function(part.schema)
        if plan is not None:
            plans[table] = plan
            small.knows(replace(part.files[-1][0], schema=plan.after))
        else:
            for version in part.versions:
                small.knows(version)
    for file in small.files():
        if file.table in parts and file.table not in plans:
            small.link(file)
    try:
        for table, plan in plans.items():
            with naming(plan):
                _Applied(shaping, parts[table], plan, small, directory / "rows", treated).write()
    except BaseException:
        small.abandon()
        raise
    # What a snapshot has seen is not among them any more.
    ranges = batch.ranges and tuple(replace(one, unseen_by=None) if one.table in plans else one for one in batch.ranges)
    return replace(small.finish(), ranges=ranges)


@contextmanager
def naming(plan: FunctionPlan) -> Iterator[None]:
    """Failures of a function are the table's; their words may hold values, and are not passed on."""
    schema = plan.before
    context = {"table": str(schema.name), "table_id": schema.id}
    try:
        yield
    except SparkLostError:
        raise
    except WalrelayError as error:
        error.context |= context
        raise
    except (Py4JError, ConnectionError, PySparkException) as error:
        if not isinstance(error, Py4JJavaError | PySparkException):
            raise SparkLostError(f"Spark was lost while the function on {schema.name} was applied") from error
        what = f"the function {plan.transform.name} failed on rows of {schema.name} ({type(error).__name__})"
        raise TransformFailedError(what, context=context) from error


class _Applied:
    """One table's changes."""

    def __init__(
        self,
        shaping: Shaping,
        part: TableChanges,
        plan: FunctionPlan,
        small: SmallLog,
        directory: Path,
        treated: dict[TableId, Counter[Special]],
    ) -> None:
        self._plan = plan
        self._small = small
        self._directory = directory
        self._policy = shaping.special_values
        self._treated = treated
        self._part = part
        assert part.batch is not None
        spark = shaping.session()
        self._frames = TableFrames(spark, part.batch.log.storage, part, Holding(SPARK, self._policy))
        self._version = replace(part.files[-1][0], schema=plan.after)
        self._ordinal = 1

    def write(self) -> None:
        frames, schema = self._frames, self._plan.before
        survey = frames.survey
        if not survey.changes:
            return
        if survey.unnamed:
            raise unnamed_rows(schema, survey.unnamed)
        refuse_unheld(schema, survey.specials, self._policy)
        if survey.treated:
            self._treated.setdefault(schema.id, Counter()).update(survey.treated)
        if survey.truncated_at is not None:
            self._add("truncate", 1, None, None)
        if frames.key:
            self._keyed()
        else:
            self._loose()

    def _keyed(self) -> None:
        frames, survey = self._frames, self._frames.survey
        if survey.moved_lacking:
            raise CopyAgainError(
                f"rows of {self._plan.before.name} got other keys, and values that were not sent again stand under the"
                " old ones"
            )
        found = latest(frames).persist()
        try:
            lacking = sorted(survey.unchanged)
            columns = [*(f"l{i}" for i in lacking), *(["came"] if lacking else [])]
            puts = found.where("is_put")
            kinds = [tuple(row) for row in puts.select(*columns).distinct().collect()] if lacking else [()]
            for kind in kinds:
                marks = dict(zip(columns, kind, strict=True))
                those = puts.where(" AND ".join(f"{name} = {value}" for name, value in marks.items()) or "true")
                unsent = [i for i in lacking if marks[f"l{i}"]]
                op = "update" if unsent and not marks["came"] else "insert"
                names = [f"n{i} AS {_quoted(column.name)}" for i, column in enumerate(frames.schema.columns)]
                self._rows(op, those.selectExpr(*names), self._unsent(unsent))
            gone = [
                f"{f'k{i}' if i in frames.key else f'CAST(NULL AS {frames.type_name(i)})'} AS {_quoted(column.name)}"
                for i, column in enumerate(frames.schema.columns)
            ]
            if survey.olds:
                self._keys(found.where("NOT is_put").selectExpr(*gone))
        finally:
            found.unpersist()

    def _unsent(self, places: Sequence[int]) -> list[str]:
        """What of the function's columns was not sent: those that are handed on."""
        names = {self._frames.schema.columns[i].name for i in places}
        if read := sorted(names & self._plan.reads):
            raise TransformFailedError(
                f"{', '.join(read)} of {self._plan.before.name} was not sent again, and the function reads it",
                hint=f"ALTER TABLE {self._plan.before.name} REPLICA IDENTITY FULL; (by its name at the source)."
                " Then `walrelay resync` copies the table again.",
            )
        return [after for after, before in self._plan.passed.items() if before in names]

    def _loose(self) -> None:
        """Rows that may be equal: those that are more, and those that are fewer, are made by the same function."""
        frames = self._frames
        found = net(frames).persist()
        try:
            names = [f"n{i} AS {_quoted(column.name)}" for i, column in enumerate(frames.schema.columns)]
            for op, sign in (("insert", ">"), ("delete", "<")):
                repeated = found.where(f"more {sign} 0").selectExpr("*", "explode(sequence(1, abs(more)))")
                self._rows(op, repeated.selectExpr(*names), [])
        finally:
            found.unpersist()

    def _rows(self, op: str, rows: DataFrame, unsent: list[str]) -> None:
        for batch in self._landed(self._plan.apply(rows), self._plan.after):
            if op == "delete":
                self._add("delete", batch.num_rows, None, batch, old_kind="row")
            else:
                self._add(op, batch.num_rows, batch, None, unsent=unsent)

    def _keys(self, rows: DataFrame) -> None:
        """Of rows that are gone: their keys, which the function leaves alone."""
        keys = list(self._plan.after.key_columns)
        kept = rows.select(*(rows[_quoted(name)] for name in keys))
        schema = self._plan.after
        alone = replace(schema, columns=tuple(schema.column(name) for name in keys))
        casts = [f"CAST({_quoted(c.name)} AS {self._type(c.name)}) AS {_quoted(c.name)}" for c in alone.columns]
        for batch in self._landed(kept.selectExpr(*casts), alone):
            given = dict(zip(batch.schema.names, batch.columns, strict=True))
            fields = list(arrow_schema(schema, ARROW))
            columns = [given.get(one.name, pa.nulls(batch.num_rows, one.type)) for one in fields]
            old = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
            self._add("delete", batch.num_rows, None, old, old_kind="key")

    def _type(self, name: str) -> str:
        from walrelay.changes.spark_dialect import DIALECT

        return DIALECT.column_type(self._plan.after.column(name))

    def _landed(self, rows: DataFrame, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """What Spark makes of them, as the log holds it."""
        wanted = arrow_schema(schema, ARROW)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows.write.parquet(str(self._directory))
        try:
            for file in sorted(self._directory.glob("*.parquet")):
                with pq.ParquetFile(file) as parquet:
                    for batch in parquet.iter_batches():
                        columns = [batch.column(one.name).cast(one.type) for one in wanted]
                        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _add(
        self,
        op: str,
        count: int,
        row: pa.RecordBatch | None,
        old: pa.RecordBatch | None,
        *,
        old_kind: str | None = None,
        unsent: Sequence[str] = (),
    ) -> None:
        schema = reading_schema(self._plan.after)
        survey, last = self._frames.survey, self._frames.survey.last_lsn
        committed = survey.last_commit.astimezone(UTC)
        lsn = survey.truncated_at[0] if op == "truncate" and survey.truncated_at is not None else last
        given: dict[str, object] = {
            "commit_lsn": pa.repeat(pa.scalar(int(lsn), pa.int64()), count),
            "end_lsn": pa.repeat(pa.scalar(int(self._part.to), pa.int64()), count),
            "ordinal": pa.array(np.arange(self._ordinal, self._ordinal + count, dtype=np.int64)),
            "xid": pa.repeat(pa.scalar(0, pa.int64()), count),
            "commit_time": pa.repeat(pa.scalar(committed, schema.field("commit_time").type), count),
            "op": pa.repeat(op, count),
            "schema_version": pa.repeat(pa.scalar(self._version.version, pa.int32()), count),
            "old_kind": pa.repeat(pa.scalar(old_kind, pa.string()), count),
            "unchanged": pa.repeat(pa.scalar(list(unsent) or None, pa.list_(pa.string())), count),
        }
        for side, batch in (("row", row), ("old", old)):
            kind = schema.field(side).type
            given[side] = pa.nulls(count, kind) if batch is None else batch.to_struct_array().cast(kind)
        self._ordinal += count
        self._small.add(self._version, pa.RecordBatch.from_arrays([given[f.name] for f in schema], schema=schema))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
