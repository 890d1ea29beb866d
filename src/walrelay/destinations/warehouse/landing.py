"""Load files: Parquet that Spark writes, in columns of our own names, for a service to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from walrelay.changes.frame_latest import latest, net
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld
from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import columns_ddl
from walrelay.destinations.warehouse.service import Warehouse
from walrelay.destinations.warehouse.values import Fitting
from walrelay.model.lsn import Lsn
from walrelay.model.schema import Column
from walrelay.model.special import Special, SpecialValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 200_000
"""So many changes make one file: a load job each is what a service counts."""


class Landing:
    """Into a directory of one attempt's own."""

    def __init__(self, warehouse: Warehouse, directory: Path) -> None:
        self._warehouse = warehouse
        self._directory = directory

    # ---------------------------------------------------------------------------------------------------------- copies

    def rows(
        self, spark: SparkSession, rows: TableRows, special_values: SpecialValues
    ) -> tuple[list[Path], Counter[Special]]:
        """The files of a copy, and what in them was treated by policy."""
        if not rows.files:
            return [], Counter()
        columns = rows.schema.columns
        fitting = Fitting(special_values, self._warehouse.array_nulls)
        reader = spark.read.schema(columns_ddl(columns)).option("datetimeRebaseMode", "CORRECTED")
        # A task for each file, or more: what came by several tasks goes by several.
        frame = reader.parquet(*rows.paths()).toDF(*(f"c{i}" for i in range(len(columns))))
        made = frame.selectExpr(
            *(
                f"{self._warehouse.landed(column, fitting.value(column, f'c{i}'))} AS n{i}"
                for i, column in enumerate(columns)
            )
        )
        counted = _counted(frame, columns, fitting)
        refuse_unheld(rows.schema, counted, special_values)
        return self._written(made), +sum(counted.values(), Counter[Special]())

    def copy_columns(self, columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
        return tuple((f"n{i}", self._warehouse.stage_type(column)) for i, column in enumerate(columns))

    # --------------------------------------------------------------------------------------------------------- changes

    def changes(self, frames: TableFrames, copied: Lsn | None) -> list[Path]:
        made = self._of_keys(frames, copied) if frames.key else self._of_rows(frames)
        if frames.survey.changes <= FEW:
            made = made.coalesce(1)
        return self._written(made)

    def _of_keys(self, frames: TableFrames, copied: Lsn | None) -> DataFrame:
        lacking = sorted(frames.survey.unchanged)
        values = [f"{self._landed(frames, i, self._key_or_value(frames, i))} AS n{i}" for i in frames.width]
        marks: list[str] = []
        if lacking:
            marks = [f"l{i}" for i in lacking]
            marks += [
                f"{self._landed(frames, i, f'CASE WHEN origin IS NULL THEN k{i} ELSE origin.k{i} END')} AS o{i}"
                for i in frames.key
            ]
            # What a copy does not have any more, a later change takes away again (SEMANTICS 8, standbys).
            marks += ["came", f"lsn <= {int(copied)} AS early" if copied is not None else "false AS early"]
        return latest(frames).selectExpr("is_put", *values, *marks)

    @staticmethod
    def _key_or_value(frames: TableFrames, i: int) -> str:
        """Of a row that goes there is only the key."""
        return f"k{i}" if i in frames.key else f"n{i}"

    def _of_rows(self, frames: TableFrames) -> DataFrame:
        values = [f"{self._landed(frames, i, f'n{i}')} AS n{i}" for i in frames.width]
        # Each row to put as often as it is to be there; one that goes once, with how often.
        times = "explode(CASE WHEN more > 0 THEN array_repeat(1L, CAST(more AS INT)) ELSE array(more) END) AS more"
        return net(frames).selectExpr(*values, "monotonically_increasing_id() AS id", times)

    def _landed(self, frames: TableFrames, i: int, value: str) -> str:
        return self._warehouse.landed(frames.schema.columns[i], value)

    def change_columns(self, frames: TableFrames) -> tuple[tuple[str, str], ...]:
        """Of the stage that takes the files."""
        own, kind = self._warehouse.dialect.flat, self._warehouse.stage_type
        values = [(f"n{i}", kind(column)) for i, column in enumerate(frames.schema.columns)]
        yes, number = own[pa.bool_()], own[pa.int64()]
        if not frames.key:
            return (*values, ("id", number), ("more", number))
        lacking = sorted(frames.survey.unchanged)
        if not lacking:
            return (("is_put", yes), *values)
        origins = [(f"o{i}", kind(frames.schema.columns[i])) for i in frames.key]
        marks = [(f"l{i}", yes) for i in lacking]
        return (("is_put", yes), *values, *marks, *origins, ("came", yes), ("early", yes))

    # ------------------------------------------------------------------------------------------------------------ both

    def _written(self, frame: DataFrame) -> list[Path]:
        place = self._directory / "load"
        frame.write.parquet(str(place))
        return sorted(place.glob("*.parquet"))


def _counted(frame: DataFrame, columns: Iterable[Column], fitting: Fitting) -> dict[int, Counter[Special]]:
    """How many values of a copy do not fit, by column; only tables that can hold such are looked through."""
    asked = [
        (i, special, f"coalesce(sum({fitting.count(column, f'c{i}', special)}), 0)")
        for i, column in enumerate(columns)
        for special in fitting.specials(column)
    ]
    if not asked:
        return {}
    (row,) = frame.selectExpr(*(f"{counted} AS s{place}" for place, (*_, counted) in enumerate(asked))).collect()
    found: dict[int, Counter[Special]] = {}
    for (i, special, _), count in zip(asked, row, strict=True):
        found.setdefault(i, Counter())[special] += count
    return found
