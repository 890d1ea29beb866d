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
    """By attribute number: a column that was dropped and added again under its name is another one."""
    old = {column.attnum or column.name: column for column in before.columns}
    new = {column.attnum or column.name: column for column in after.columns}
    steps = [SchemaStep("drop", column.name) for place, column in old.items() if place not in new]
    for place, column in new.items():
        was = old.get(place)
        if was is None:
            steps.append(SchemaStep("add", column.name, column))
            continue
        if was.name != column.name:
            steps.append(SchemaStep("rename", was.name, column))
        if (was.type, was.as_text) != (column.type, column.as_text):
            steps.append(SchemaStep("retype", was.name, column))
    return tuple(sorted(steps, key=lambda step: _ORDER.index(step.kind)))
