"""What a batch of changes comes to, in Spark SQL: `changes/collapse.py` says the same in plain Python.

A change's place in the order is `q`; a row that goes is at 2q and one that comes at 2q + 1, so that an update which
changes the key first takes away, then puts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from walrelay.changes.frames import TableFrames
from walrelay.model.schema import Column, PgType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(frames: TableFrames) -> DataFrame:
    """Of each key what happened last, for a table whose rows have one; of what came after the last truncate.

    `is_put`, `lsn`, `s` the place in the order, `k0`… the key, `n0`… the row's values (of a row that is gone there are
    none). Where values were left out: `l0`… whether the batch does not have the value either; it then stands in the
    destination, under the key that the row has there: `origin`, which is NULL when that is its own, or when it came
    within the batch (`came`).
    """
    lacking = sorted(frames.survey.unchanged)
    touches = _touches(frames, lacking)
    if lacking:
        touches = _resolved(frames, touches, lacking)
    keys = _names("k", frames.key)
    number = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY s DESC) AS number"
    return touches.selectExpr("*", number).where("number = 1").drop("number")


def _names(side: str, places: Iterable[int]) -> list[str]:
    return [f"{side}{i}" for i in places]


def _touches(frames: TableFrames, lacking: list[int]) -> DataFrame:
    """Every key that a row leaves or takes, with the place `s` in the order."""
    survey, key, width = frames.survey, frames.key, frames.width
    moved, is_put = "false", "true"
    if survey.olds:
        moved = "(old_kind IS NOT NULL AND (" + " OR ".join(f"n{i} IS DISTINCT FROM o{i}" for i in key) + "))"
        is_put = "op <> 'delete'"
    columns = [*_names("n", width), *_names("m", lacking)]
    marks = [f"op = 'insert' OR (op = 'update' AND {moved}) AS comes", f"op = 'update' AND {moved} AS moves"]
    # A row that goes has no values, but its key.
    found = frames.events(width, key if survey.olds else ()).selectExpr(
        *(f"CASE WHEN {is_put} THEN n{i} ELSE o{i} END AS k{i}" if survey.olds else f"n{i} AS k{i}" for i in key),
        f"CASE WHEN {is_put} THEN 2 * q + 1 ELSE 2 * q END AS s",
        f"{is_put} AS is_put",
        "commit_lsn AS lsn",
        *(marks if lacking else ()),
        *columns,
    )
    if not survey.moves:
        return found
    nothing = [f"CAST(NULL AS {found.schema[name].dataType.simpleString()}) AS {name}" for name in columns]
    marks = ["false AS comes", "false AS moves"] if lacking else []
    left = (
        frames.events(key, key)
        .where(f"op = 'update' AND {moved}")
        .selectExpr(
            *(f"o{i} AS k{i}" for i in key), "2 * q AS s", "false AS is_put", "commit_lsn AS lsn", *marks, *nothing
        )
    )
    return found.unionByName(left)


# ------------------------------------------------------------------------------------------- values that were not sent


def _resolved(frames: TableFrames, touches: DataFrame, lacking: list[int]) -> DataFrame:
    """With values that were left out taken from earlier changes of the same row.

    An epoch of a key begins when a row takes it, and is named by the place where. The row that was there before the
    batch has one without a beginning, with a negative name. A row's life is the first of its epochs.
    """
    keys = _names("k", frames.key)
    over = f"PARTITION BY {', '.join(keys)}"
    began = f"max(CASE WHEN comes THEN s END) OVER ({over} ORDER BY s ROWS UNBOUNDED PRECEDING)"
    touches = touches.selectExpr("*", f"coalesce({began}, -min(s) OVER ({over})) AS epoch")
    if frames.survey.moved_lacking:
        touches = _with_lives(frames, touches)
    else:
        touches = touches.withColumnRenamed("epoch", "life").selectExpr("*", f"{_no_origin(frames)} AS origin")
    story = "(PARTITION BY life ORDER BY s ROWS UNBOUNDED PRECEDING)"
    # In a struct: the last value that was sent may be NULL.
    sent = [f"last(CASE WHEN is_put AND NOT m{i} THEN struct(n{i}) END, true) OVER {story} AS v{i}" for i in lacking]
    others = [f"n{i}" for i in frames.width if i not in lacking]
    return touches.selectExpr("*", *sent).selectExpr(
        *keys,
        "s",
        "is_put",
        "lsn",
        *others,
        *(f"v{i}.n{i} AS n{i}" for i in lacking),
        *(f"(is_put AND v{i} IS NULL) AS l{i}" for i in lacking),
        "origin",
        "life > 0 AS came",
    )


def _no_origin(frames: TableFrames) -> str:
    fields = ", ".join(f"k{i}: {frames.type_name(i)}" for i in frames.key)
    return f"CAST(NULL AS STRUCT<{fields}>)"


def _with_lives(frames: TableFrames, touches: DataFrame) -> DataFrame:
    """Follow rows through changes of their keys: each round halves the way to the first epoch."""
    touches = touches.localCheckpoint()
    left = touches.selectExpr("s + 1 AS child", "epoch AS parent")
    links = touches.where("moves").selectExpr("s AS child").join(left, "child").localCheckpoint()
    while True:
        above = links.selectExpr("child AS parent", "parent AS root")
        if not links.join(above, "parent", "left_semi").limit(1).count():
            break
        links = links.join(above, "parent", "left").selectExpr("child", "coalesce(root, parent) AS parent")
        links = links.localCheckpoint()
    keys = _names("k", frames.key)
    roots = touches.where("epoch < 0").selectExpr("epoch AS life", f"struct({', '.join(keys)}) AS origin")
    roots = roots.dropDuplicates(["life"])
    lives = touches.join(links.selectExpr("child AS epoch", "parent"), "epoch", "left")
    lives = lives.selectExpr("*", "coalesce(parent, epoch) AS life").drop("epoch", "parent").join(roots, "life", "left")
    own = " AND ".join(f"origin.{key} IS NOT DISTINCT FROM {key}" for key in keys)
    return (
        lives.selectExpr("*", f"CASE WHEN NOT ({own}) THEN origin END AS other")
        .drop("origin")
        .withColumnRenamed("other", "origin")
    )


# ------------------------------------------------------------------------------------------------- tables without a key


def net(frames: TableFrames) -> DataFrame:
    """Of a table without a key: `n0`… a row, and `more`: how many more of it there are, or fewer."""
    survey, width = frames.survey, frames.width
    names = _names("n", width)
    events = frames.events(width, width if survey.olds else ())
    moves = events.where("op IN ('insert', 'update')").selectExpr(*names, "1 AS more")
    if survey.olds:
        went = events.where("op IN ('update', 'delete')").selectExpr(*(f"o{i} AS n{i}" for i in width), "-1 AS more")
        moves = moves.unionByName(went)
    columns = frames.schema.columns
    exactly = [f"{part} AS g{i}_{j}" for i in width for j, part in enumerate(exact(columns[i], f"n{i}"))]
    groups = [f"g{i}_{j}" for i in width for j, _ in enumerate(exact(columns[i], f"n{i}"))]
    # The values come from one of the changes, not from the groups: Spark groups -0.0 with 0.0, as the latter.
    return (
        moves.selectExpr(f"struct({', '.join(names)}) AS r", "more", *exactly)
        .groupBy(*groups)
        .agg({"r": "first", "more": "sum"})
        .selectExpr("`first(r)` AS r", "`sum(more)` AS more")
        .where("more <> 0")
        .selectExpr("r.*", "more")
    )


def exact(column: Column, value: str) -> list[str]:
    """What must be equal for two values to be the same: Spark takes 0.0 and -0.0 for equal."""
    if column.as_text or not _holds_float(column.type):
        return [value]
    return [value, f"CAST({value} AS STRING)"]


def _holds_float(type_: PgType) -> bool:
    if type_.kind == "base":
        return type_.name in {"float4", "float8", "vector", "halfvec"}
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return any(_holds_float(part) for part in parts)
