"""What a table's changes come to, as changes again: of each key, or row, what is left to do. In the log's own columns,
so that whoever takes the log's files takes these too."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from walrelay.changes.frame_latest import latest, net
from walrelay.changes.frames import TableFrames
from walrelay.changes.spark_values import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW = 200_000
"""So many changes are left in one file."""


def left_to_do(frames: TableFrames) -> DataFrame:
    """For a table whose rows keep their keys, or leave no value out: see `FrameSurvey.moved_lacking`."""
    found = _of_keys(frames) if frames.key else _of_rows(frames)
    if frames.survey.changes <= FEW:
        found = found.coalesce(1)
    row = frames.row_type()
    columns = [
        "lsn AS commit_lsn",
        f"{int(frames.part.to)}L AS end_lsn",
        "monotonically_increasing_id() + 1 AS ordinal",
        "0L AS xid",
        "op",
        f"CAST(`row` AS {row}) AS `row`",
        f"CAST(`old` AS {row}) AS `old`",
        "old_kind",
        "CAST(`unchanged` AS ARRAY<STRING>) AS `unchanged`",
    ]
    made = found.selectExpr(*columns)
    if frames.survey.truncated_at is None:
        return made
    lsn, _ = frames.survey.truncated_at
    # Before all others: what came up to the truncate is not among them.
    first = frames.spark.range(1).selectExpr(
        f"{lsn}L AS commit_lsn",
        f"{int(frames.part.to)}L AS end_lsn",
        "0L AS ordinal",
        "0L AS xid",
        "'truncate' AS op",
        f"CAST(NULL AS {row}) AS `row`",
        f"CAST(NULL AS {row}) AS `old`",
        "CAST(NULL AS STRING) AS old_kind",
        "CAST(NULL AS ARRAY<STRING>) AS `unchanged`",
    )
    return reduce(lambda a, b: a.unionByName(b), [first, made])


def _of_keys(frames: TableFrames) -> DataFrame:
    names = [column.name for column in frames.schema.columns]
    lacking = sorted(frames.survey.unchanged)
    goes = {i: f"k{i}" for i in frames.key}
    lacks = " OR ".join(f"l{i}" for i in lacking) or "false"
    # One that came within the batch lacks what nobody has: as an insert it is found out.
    is_update = f"(({lacks}) AND NOT came)" if lacking else "false"
    listed = ", ".join(f"CASE WHEN l{i} THEN {literal(names[i])} END" for i in lacking)
    unchanged = f"CASE WHEN {lacks} THEN array_compact(array({listed})) END" if lacking else "NULL"
    return latest(frames).selectExpr(
        "lsn",
        f"CASE WHEN NOT is_put THEN 'delete' WHEN {is_update} THEN 'update' ELSE 'insert' END AS op",
        f"CASE WHEN is_put THEN {_image(frames, {i: f'n{i}' for i in frames.width})} END AS `row`",
        f"CASE WHEN NOT is_put THEN {_image(frames, goes)} END AS `old`",
        "CASE WHEN NOT is_put THEN 'key' END AS old_kind",
        f"{unchanged} AS `unchanged`",
    )


def _of_rows(frames: TableFrames) -> DataFrame:
    image = _image(frames, {i: f"n{i}" for i in frames.width})
    repeated = net(frames).selectExpr("*", "explode(sequence(1, abs(more))) AS nth")
    return repeated.selectExpr(
        f"{frames.survey.last_lsn}L AS lsn",
        "CASE WHEN more > 0 THEN 'insert' ELSE 'delete' END AS op",
        f"CASE WHEN more > 0 THEN {image} END AS `row`",
        f"CASE WHEN more < 0 THEN {image} END AS `old`",
        "CASE WHEN more < 0 THEN 'row' END AS old_kind",
        "NULL AS `unchanged`",
    )


def _image(frames: TableFrames, values: dict[int, str]) -> str:
    """A whole row; NULL where there is no value for a column."""
    fields = [
        f"{literal(column.name)}, {values.get(i, f'CAST(NULL AS {frames.type_name(i)})')}"
        for i, column in enumerate(frames.schema.columns)
    ]
    return f"named_struct({', '.join(fields)})"
