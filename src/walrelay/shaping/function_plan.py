"""What a function on DataFrames does to a table, found out before any row is there: from Spark's analysed plan."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from walrelay.changes.spark_dialect import DIALECT, SPARK, columns_ddl
from walrelay.decode.base import ARROW
from walrelay.decode.registry import arrow_type
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.shaping.failures import refused
from walrelay.shaping.spark_types import pg_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RowFunction = Callable[["DataFrame"], "DataFrame"]
ROW_WISE = frozenset({"Project", "SubqueryAlias", "LogicalRDD", "LocalRelation", "LogicalRelation"})
"""Parts of a plan that give a row for each row."""
FIRST_NUMBER = 1_000_000_000


@dataclass(frozen=True)
class Transform:
    """A function on the rows of a table, as they are once the options have been applied: it gives a row for each row,
    and leaves the columns of the key alone."""

    function: RowFunction = field(repr=False)
    always_sent: tuple[str, ...] = ()
    """Columns that the function reads, and of which it is known that their values are short. Postgres does not send a
    long value again that has not changed, and then there is nothing to read."""

    @property
    def name(self) -> str:
        return (
            f"{getattr(self.function, '__module__', '')}.{getattr(self.function, '__qualname__', repr(self.function))}"
        )


@dataclass(frozen=True)
class FunctionPlan:
    """What the function makes of one shape of a table."""

    transform: Transform
    before: TableSchema
    after: TableSchema
    passed: Mapping[str, str]
    """Columns that come out as they went in, and what they are called before."""
    reads: frozenset[str]
    """Columns of which others are made."""

    def apply(self, rows: DataFrame) -> DataFrame:
        """Rows as they go in → as they come out, in the types that the destination is told."""
        made = self.transform.function(rows)
        columns = [
            f"CAST({DIALECT.quoted(one.name)} AS {DIALECT.column_type(one)}) AS {DIALECT.quoted(one.name)}"
            for one in self.after.columns
        ]
        return made.selectExpr(*columns)


def function_plan(spark: SparkSession, transform: Transform, before: TableSchema) -> FunctionPlan:
    """Raises TableOptionError for a function that cannot be applied to changes of such a table."""
    given = spark.createDataFrame([], columns_ddl(before.columns))
    try:
        made = transform.function(given)
        ids = _numbers(made, given)
    except Exception as error:
        # Its words may be anybody's; the error itself is shown with --debug.
        raise refused(before, "transform", f"the function fails ({type(error).__name__})") from error
    by_id = {number: name for name, number in _attributes(given)}
    passed = {name: by_id[number] for name, number in _attributes(made) if number in by_id}
    reads = frozenset(by_id[number] for number in ids if number in by_id)
    plan = FunctionPlan(transform, before, before, passed, reads)
    _check(plan, made)
    columns = tuple(_column(plan, part) for part in made.schema.fields)
    after = replace(before, columns=columns)
    if before.identity == "full":
        after = replace(after, identity_columns=tuple(column.name for column in columns))
    return replace(plan, after=after)


def _check(plan: FunctionPlan, made: DataFrame) -> None:
    before = plan.before
    for node in _nodes(_analysed(made)):
        kind = node.getClass().getSimpleName()
        if kind not in ROW_WISE:
            why = f"the function does not give a row for each row (Spark calls what it does {kind})"
            raise refused(before, "transform", why, "Make columns of columns only: withColumn, select, drop.")
    for name in before.key_columns:
        if plan.passed.get(name) != name:
            raise refused(before, "transform", f"the function drops or changes {name}, which belongs to the key")
    if doubled := [name for name in made.columns if made.columns.count(name) > 1]:
        raise refused(before, "transform", f"the function gives two columns called {doubled[0]}")
    unsent = sorted(_may_be_unsent(before) & plan.reads - set(plan.transform.always_sent))
    if unsent:
        raise refused(
            before,
            "transform",
            f"the function reads {', '.join(unsent)}, which Postgres does not send again when it has not changed",
            f"ALTER TABLE {before.name} REPLICA IDENTITY FULL; (by its name at the source). Or, when values are short"
            f" (less than 2 kB a row): Transform(function, always_sent={tuple(unsent)!r}).",
        )


def _may_be_unsent(schema: TableSchema) -> set[str]:
    """Columns whose values Postgres may store apart from the row."""
    if schema.identity == "full":
        return set()
    keys = set(schema.key_columns)
    return {one.name for one in schema.columns if one.name not in keys and (one.as_text or _is_wide(one.type))}


_FIXED = frozenset({"bool", "int2", "int4", "int8", "oid", "xid", "float4", "float8", "date", "time", "timetz"}) | {
    *("timestamp", "timestamptz", "interval", "uuid", "money", "macaddr", "macaddr8", "point", "lseg", "box", "circle"),
    *("line", "pg_lsn", "name", "char"),
}
"""Types whose values are never stored apart."""


def _is_wide(type_: PgType) -> bool:
    return type_.kind != "enum" and not (type_.kind == "base" and type_.name in _FIXED)


def _column(plan: FunctionPlan, part: Any) -> Column:
    """What comes out, as a column: the one that went in, where Spark holds its values as the log does."""
    name = plan.passed.get(part.name)
    if name is not None:
        own = plan.before.column(name)
        if own.as_text or arrow_type(own.type, SPARK) == arrow_type(own.type, ARROW):
            return replace(own, name=part.name)
    try:
        type_ = pg_type(part.dataType)
    except ValueError as error:
        raise refused(plan.before, "transform", f"{part.name} comes out as {error}", "Cast it to a string.") from error
    number = FIRST_NUMBER + zlib.crc32(f"{part.name} {type_.oid}:{type_.modifier}".encode()) % FIRST_NUMBER
    return Column(part.name, type_, attnum=number, filled=True)


# ------------------------------------------------------------------------------------------------------ Spark's plans


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _all(plan.children()):
        yield from _nodes(child)


def _all(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _attributes(frame: DataFrame) -> list[tuple[str, int]]:
    return [(one.name(), one.exprId().id()) for one in _all(_analysed(frame).output())]


def _numbers(made: DataFrame, given: DataFrame) -> set[int]:
    """Of the columns that some expression reads, rather than hands on."""
    found: set[int] = set()
    for node in _nodes(_analysed(made)):
        for expression in _all(node.expressions()):
            if expression.getClass().getSimpleName() != "AttributeReference":
                found |= {one.exprId().id() for one in _all(expression.references().toSeq())}
    return found
