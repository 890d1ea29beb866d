"""What is done to the tables of a pipeline, by table: which options a table has, and what they make of each shape."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import fields

from walrelay.errors import ConfigError
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema
from walrelay.model.table_options import TableOptions, TablePattern, tables_of
from walrelay.shaping.failures import OptionsLostError, TableOptionError
from walrelay.shaping.plan import Plan, plan_for

RUNNING = ("include", "on_schema_change", "on_removed", "on_silent_change", "special_values")
"""Options that leave what the destination holds as it is."""


class Shaping:
    """Of one pipeline. A table keeps the options of the name by which it was first seen: one that is renamed must not
    lose what hides its columns. Usable from several threads."""

    def __init__(self, patterns: Mapping[str, TableOptions] | None = None) -> None:
        self.patterns = dict(patterns or {})
        for text in self.patterns:
            try:
                TablePattern.parse(text)
            except ValueError as error:
                raise ConfigError(str(error), hint="Write schema.table; * stands for any characters.") from error
        self._bound: dict[TableId, TableName] = {}
        self._plans: dict[TableSchema, Plan | None] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.patterns)

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
        plan = self.plan(schema)
        return schema if plan is None else plan.shaped

    def shaped_name(self, name: TableName) -> TableName:
        rename = self.options(name).rename if self.patterns else None
        return name if rename is None else rename.name_of(name)

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
        given = [(option, value) for option, value in told if value is not None]
        return hashlib.sha256(repr((given, salt)).encode()).hexdigest() if given else ""

    def _made(self, schema: TableSchema) -> Plan | None:
        first = self._bound.setdefault(schema.id, schema.name)
        options = self.options(schema.name)
        if first != schema.name and self.fingerprint(first) != self.fingerprint(schema.name):
            raise OptionsLostError(
                f"{first} is called {schema.name} now, for which other options are given",
                context={"table": str(schema.name), "table_id": schema.id},
            )
        shaping = [name for name in options.said() if name not in RUNNING]
        return plan_for(schema, options) if shaping else None
