"""What a table's changes come to, as a DataFrame for everybody: the frame lane's own has names that only it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from walrelay.changes.frame_latest import latest, net
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.spark_values import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Latest:
    """Of a table with a key: `deleted`, `key`, `row` (NULL when deleted), `unchanged` (names of columns whose value was
    not sent, neither now nor earlier in the batch), `origin` (the key under which the destination holds what is
    unchanged, when that is another one), `came` (whether the row came within the batch: what is unchanged then is
    nowhere, and the table must be copied again), one row for each key. Of a table without a key: `row`, and `more`, how
    many more of it there are, or fewer."""

    changes: int
    """How many there were."""
    truncated: bool
    """Whether all that was there before goes first."""
    frame: DataFrame


def latest_of(frames: TableFrames) -> Latest:
    """Raises when changes do not say which row they mean, or a key cannot be held."""
    survey, names = frames.survey, [column.name for column in frames.schema.columns]
    if survey.unnamed:
        raise unnamed_rows(frames.schema, survey.unnamed)
    refuse_unheld(frames.schema, survey.specials, frames.holding.special_values)
    row = _struct(names, [f"n{i}" for i in frames.width])
    if not frames.key:
        found = net(frames).selectExpr(f"{row} AS row", "more")
        return Latest(survey.changes, survey.truncated_at is not None, found)
    key_names, keys = [names[i] for i in frames.key], [f"k{i}" for i in frames.key]
    lacking = sorted(survey.unchanged)
    unchanged = ", ".join(f"CASE WHEN l{i} THEN {literal(names[i])} END" for i in lacking)
    origin = _struct(key_names, [f"origin.{one}" for one in keys])
    found = latest(frames).selectExpr(
        "NOT is_put AS deleted",
        f"{_struct(key_names, keys)} AS key",
        f"CASE WHEN is_put THEN {row} END AS row",
        f"array_compact(array({unchanged})) AS unchanged" if lacking else "CAST(array() AS ARRAY<STRING>) AS unchanged",
        f"CASE WHEN origin IS NOT NULL THEN {origin} END AS origin" if lacking else "CAST(NULL AS STRING) AS origin",
        "came" if lacking else "false AS came",
    )
    return Latest(survey.changes, survey.truncated_at is not None, found)


def _struct(names: list[str], values: list[str]) -> str:
    fields = ", ".join(f"{literal(name)}, {value}" for name, value in zip(names, values, strict=True))
    return f"named_struct({fields})"
