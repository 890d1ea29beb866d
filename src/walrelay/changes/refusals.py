"""Errors about changes that do not tell enough, in the same words whatever destination finds out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from walrelay.errors import SpecialKeyError, SpecialValueError, UnnamedRowError, UnsentValueError
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special, SpecialValues


def unnamed_rows(schema: TableSchema, count: int) -> UnnamedRowError:
    """A row that is named by other columns than we look for it by would be taken for one that is not there."""
    by = f"by its key ({', '.join(schema.key_columns)})" if schema.key_columns else "by all its columns"
    return UnnamedRowError(
        f"{count} changes of {schema.name} do not say {by} which row they mean", hint=identity_hint(schema)
    )


def unsent_values(schema: TableSchema, names: Iterable[str]) -> UnsentValueError:
    """A value that was not sent, and is nowhere else, is not NULL (SEMANTICS 14)."""
    return UnsentValueError(
        f"rows came into {schema.name} without what they hold in {', '.join(names)}: the publication's row"
        " filter let them in, and Postgres does not send a stored value again that has not changed",
        hint=f"ALTER TABLE {schema.name} REPLICA IDENTITY FULL; (a partitioned table: on each partition)"
        " Then `walrelay resync` copies the table again.",
    )


def refuse_unheld(schema: TableSchema, found: Mapping[int, Counter[Special]], special_values: SpecialValues) -> None:
    """Raise for values, counted by column, that the destination cannot hold: always in a key, else by policy."""
    for i, counts in found.items():
        column = schema.columns[i].name
        for special in (one for one, count in counts.items() if count):
            where, context = f"{special.value}, in column {column} of {schema.name}", {"special": special.name}
            if column in schema.key_columns:
                raise SpecialKeyError(f"a key that the destination's type cannot hold: {where}", context=context)
            if special_values == "error":
                raise SpecialValueError(f"a value the destination's type cannot hold: {where}", context=context)


def identity_hint(schema: TableSchema) -> str:
    """What a table says of its identity may be so already, and a partition of it say something else."""
    leaf = "Run `walrelay preflight`: it names a partition whose REPLICA IDENTITY does not fit, and how to alter it."
    own = "Give the table a primary key, or set its REPLICA IDENTITY to FULL. Of a partitioned table: "
    is_set = schema.identity == "full" or bool(schema.identity_columns)
    return f"{leaf if is_set else own + leaf} Then `walrelay resync` copies the table again."
