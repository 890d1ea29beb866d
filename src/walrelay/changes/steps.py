"""What DDL has done to a table between two of its shapes, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walrelay.model.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One thing to do to a table's columns, in this order: drop, rename, retype, add. With several renames take care:
    they happen at once, and names may change places."""

    kind: Literal["drop", "rename", "retype", "add"]
    name: str
    """What the column is called before."""
    column: Column | None = None
    """What it is afterwards; None for one that is gone."""


_ORDER = ("drop", "rename", "retype", "add")


def schema_steps(before: TableSchema, after: TableSchema) -> tuple[SchemaStep, ...]:
    """By attribute number where both shapes know it, else by name: a column that was dropped and added again under its
    name is another one."""
    old = _found(before.columns, after.columns)
    kept = {column.name for column in old.values()}
    steps = [SchemaStep("drop", column.name) for column in before.columns if column.name not in kept]
    for column in after.columns:
        was = old.get(column.name)
        if was is None:
            steps.append(SchemaStep("add", column.name, column))
            continue
        if was.name != column.name:
            steps.append(SchemaStep("rename", was.name, column))
        if (was.type, was.as_text) != (column.type, column.as_text):
            steps.append(SchemaStep("retype", was.name, column))
    return tuple(sorted(steps, key=lambda step: _ORDER.index(step.kind)))


def _found(before: tuple[Column, ...], after: tuple[Column, ...]) -> dict[str, Column]:
    """What each of the later columns was, by its name now."""
    by_number = {column.attnum: column for column in before if column.attnum}
    found = {column.name: by_number[column.attnum] for column in after if column.attnum in by_number}
    taken = {column.name for column in found.values()}
    by_name = {column.name: column for column in before if column.name not in taken}
    for column in after:
        named = by_name.get(column.name)
        if column.name not in found and named is not None and not (named.attnum and column.attnum):
            found[column.name] = named
    return found
