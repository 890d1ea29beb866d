"""What is done to the tables of a pipeline, by table: which options a table has, and what they make of each shape."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from walrelay.changes.spark_failures import spark_failures
from walrelay.errors import ConfigError
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues
from walrelay.model.table_options import TableOptions, TablePattern, tables_of
from walrelay.shaping.failures import OptionsLostError, TableOptionError, refused
from walrelay.shaping.function_plan import FunctionPlan, RowFunction, Transform, function_plan
from walrelay.shaping.plan import Plan, plan_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNING = ("include", "on_schema_change", "on_removed", "on_silent_change", "special_values")
"""Options that leave what the destination holds as it is."""


class Shaping:
    """Of one pipeline. A table keeps the options of the name by which it was first seen: one that is renamed must not
    lose what hides its columns. Usable from several threads."""

    def __init__(
        self,
        patterns: Mapping[str, TableOptions] | None = None,
        functions: Mapping[str, RowFunction | Transform] | None = None,
        *,
        spark: Callable[[], SparkSession] | None = None,
        special_values: SpecialValues = "null",
    ) -> None:
        """`functions` are for tables by name, not by pattern; they need `spark`."""
        self.patterns = dict(patterns or {})
        for text in self.patterns:
            try:
                TablePattern.parse(text)
            except ValueError as error:
                raise ConfigError(str(error), hint="Write schema.table; * stands for any characters.") from error
        self.transforms = {_name(text): _transform(given) for text, given in (functions or {}).items()}
        self.special_values: SpecialValues = special_values
        self._spark = spark
        self._session: SparkSession | None = None
        self._functions: dict[TableSchema, FunctionPlan | None] = {}
        self._by_table: dict[TableId, Transform] = {}
        self._bound: dict[TableId, TableName] = {}
        self._plans: dict[TableSchema, Plan | None] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.patterns or self.transforms)

    def options(self, name: TableName) -> TableOptions:
        """Of the table of this name."""
        try:
            return tables_of(self.patterns, name)
        except ValueError as error:
            raise TableOptionError(f"options of {name}: {error}", context={"table": str(name)}) from error

    def bind(self, tables: Mapping[TableId, TableName]) -> None:
        """By which names these tables were first seen, in an earlier run."""
        with self._lock:
            self._bound |= tables

    def includes(self, table: TableSchema) -> bool:
        return self.includes_name(table.name)

    def includes_name(self, name: TableName) -> bool:
        return not self.patterns or self.options(name).include is not False

    def plan(self, schema: TableSchema) -> Plan | None:
        """What is done to a table of this shape; None when nothing is."""
        if not self.patterns:
            return None
        with self._lock:
            if schema not in self._plans:
                self._plans[schema] = self._made(schema)
            return self._plans[schema]

    def shaped(self, schema: TableSchema) -> TableSchema:
        """The table as the destination gets it."""
        plan, function = self.plan(schema), self.function_of(schema)
        if function is not None:
            return function.after
        return schema if plan is None else plan.shaped

    def alters(self, schema: TableSchema) -> bool:
        """Whether anything is done to the table."""
        has_function = self._named(schema) is not None
        return has_function or self.plan(schema) is not None

    def function_of(self, schema: TableSchema) -> FunctionPlan | None:
        """What a function makes of a table of this shape, once the options have been applied; None without one."""
        transform = self._named(schema)
        if transform is None:
            return None
        plan = self.plan(schema)
        if plan is not None and plan.made:
            why = "a function and soft_deletes or history are not there together in this version"
            raise refused(schema, "transform", why, "Leave out one of them.")
        return self._function(transform, schema if plan is None else plan.shaped)

    def function(self, shaped: TableSchema) -> FunctionPlan | None:
        """The same, by the table as it is after the options."""
        with self._lock:
            transform = self._by_table.get(shaped.id)
        return None if transform is None else self._function(transform, shaped)

    def session(self) -> SparkSession:
        """In which functions are applied."""
        assert self._spark is not None, "functions need a Spark session"
        with self._lock:
            if self._session is None:
                self._session = self._spark().newSession()
                self._session.conf.set("spark.sql.session.timeZone", "UTC")
                self._session.conf.set("spark.sql.caseSensitive", "true")
                self._session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            return self._session

    def _named(self, schema: TableSchema) -> Transform | None:
        if not self.transforms:
            return None
        with self._lock:
            first = self._bound.setdefault(schema.id, schema.name)
            found = self.transforms.get(first) or self.transforms.get(schema.name)
            if found is not None:
                self._by_table[schema.id] = found
            return found

    def _function(self, transform: Transform, shaped: TableSchema) -> FunctionPlan:
        session = self.session()
        with self._lock:
            known = self._functions.get(shaped)
        if known is None:
            with spark_failures(f"looking at the function on {shaped.name}"):
                known = function_plan(session, transform, shaped)
            with self._lock:
                self._functions[shaped] = known
        return known

    def shaped_name(self, name: TableName) -> TableName:
        rename = self.options(name).rename if self.patterns else None
        return name if rename is None else rename.name_of(name)

    def shapes(self, name: TableName) -> list[str]:
        """The options by which the destination's rows are others than the source's."""
        said = [option for option in self.options(name).said() if option not in RUNNING]
        return [*said, "transform"] if name in self.transforms else said

    def fingerprint(self, name: TableName) -> str:
        """Of all that the destination's rows depend on; it tells nothing about a salt that is not guessed."""
        options = self.options(name)
        said = [(one.name, getattr(options, one.name)) for one in fields(options) if one.name not in RUNNING]
        salt = options.hash.salt if options.hash else ""
        told = [(option, sorted(value.items()) if isinstance(value, Mapping) else value) for option, value in said]
        if options.rename is not None:
            rename = options.rename
            told = [(option, value) for option, value in told if option != "rename"]
            told.append(("rename", (rename.schema, rename.table, sorted(rename.columns.items()))))
        given: list[object] = [(option, value) for option, value in told if value is not None]
        if name in self.transforms:
            given.append(("transform", self.transforms[name].name))
        return hashlib.sha256(repr((given, salt)).encode()).hexdigest() if given else ""

    def _made(self, schema: TableSchema) -> Plan | None:
        first = self._bound.setdefault(schema.id, schema.name)
        options = self.options(schema.name)
        if first != schema.name and self.fingerprint(first) != self.fingerprint(schema.name):
            raise OptionsLostError(
                f"{first} is called {schema.name} now, for which other options are given",
                context={"table": str(schema.name), "table_id": schema.id},
            )
        return plan_for(schema, options) if set(options.said()) - set(RUNNING) else None


def _name(text: str) -> TableName:
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), hint="Write schema.table, by the source's names.") from error


def _transform(given: RowFunction | Transform) -> Transform:
    return given if isinstance(given, Transform) else Transform(given)
