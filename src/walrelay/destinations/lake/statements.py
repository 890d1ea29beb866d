"""Spark SQL that takes what a batch comes to into a table: the one place where a change becomes a MERGE."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from walrelay.changes.frame_latest import exact, latest, net
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import unsent_values
from walrelay.changes.spark_dialect import DIALECT
from walrelay.changes.spark_values import literal
from walrelay.errors import CopyAgainError, MissingRowError, WalrelayError
from walrelay.model.lsn import Lsn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

quoted = DIALECT.quoted


class Statements:
    """For one table's part of a batch. `table` is its name in SQL; `copied` where the snapshot of its copy was taken,
    None for a table that changes alone have made: only of a copied one is a row that is not there a mistake.
    `has_added`: columns came later, whose value is not known in the rows that were there."""

    def __init__(self, frames: TableFrames, table: str, copied: Lsn | None, *, has_added: bool) -> None:
        self._frames = frames
        self._table = table
        self._copied = copied
        self._has_added = has_added
        self._names = [quoted(column.name) for column in frames.schema.columns]
        self._lacking = sorted(frames.survey.unchanged)

    def run(self) -> None:
        """Take the changes, in one commit."""
        frames = self._frames
        if frames.key:
            source = self._filled(latest(frames))
            if frames.survey.truncated_at is not None:
                self._overwrite(source.where("is_put"))
            else:
                self._merge(source)
            return
        source = net(frames)
        if frames.survey.truncated_at is not None:
            self._overwrite(self._repeated(source.where("more > 0")))
        elif frames.survey.olds:
            self._exchange(source)
        else:
            self._append(self._repeated(source))

    # -------------------------------------------------------------------------------------------- tables with a key

    def _merge(self, source: DataFrame) -> None:
        key = self._frames.key
        same = " AND ".join(f"t.{self._names[i]} = s.k{i}" for i in key)
        updates = ", ".join(f"t.{self._names[i]} = {self._held(i)}" for i in self._frames.width)
        comes = "s.is_put"
        if self._lacking and self._copied is not None:
            # What a copy does not have any more, a later change takes away again (SEMANTICS 8, standbys).
            comes += f" AND NOT ({self._lacks} AND s.lsn <= {int(self._copied)})"
        values = ", ".join(self._founded(i) for i in self._frames.width)
        with_source = self._view(source)
        self._sql(
            f"MERGE INTO {self._table} AS t USING {with_source} AS s ON {same}"
            f" WHEN MATCHED AND NOT s.is_put THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {updates}"
            f" WHEN NOT MATCHED AND {comes} THEN INSERT ({', '.join(self._names)}) VALUES ({values})"
        )

    @property
    def _lacks(self) -> str:
        return "(" + " OR ".join(f"s.l{i}" for i in self._lacking) + ")"

    def _held(self, i: int) -> str:
        return f"CASE WHEN s.l{i} THEN t.{self._names[i]} ELSE s.n{i} END" if i in self._lacking else f"s.n{i}"

    def _founded(self, i: int) -> str:
        """A value of a row that is not there yet; one that lacks some should be."""
        if i != self._frames.key[0] or not self._lacking or self._copied is None:
            return f"s.n{i}"
        return f"CASE WHEN {self._lacks} THEN {raised(self._missing)} ELSE s.n{i} END"

    @property
    def _missing(self) -> WalrelayError:
        name = self._frames.schema.name
        if self._has_added:
            return CopyAgainError(f"{name} has columns that came later, and rows in which their value is not known")
        return MissingRowError(f"rows that changes of {name} change or take away are not there")

    def _filled(self, source: DataFrame) -> DataFrame:
        """With what a row that took another key has left behind under the old one, which is still there."""
        if not self._lacking:
            return source
        schema, key = self._frames.schema, self._frames.key
        unsent = unsent_values(schema, [schema.columns[i].name for i in self._lacking])
        lacks = " OR ".join(f"l{i}" for i in self._lacking)
        is_early = f"lsn <= {int(self._copied)}" if self._copied is not None else "false"
        checked = f"CASE WHEN came AND ({lacks}) AND NOT ({is_early}) THEN {raised(unsent)} ELSE is_put END AS is_put"
        rest = [name for name in source.columns if name != "is_put"]
        source = source.selectExpr(checked, *rest)
        if not self._frames.survey.moved_lacking:
            return source
        there = self._frames.spark.table(self._table).selectExpr(
            *(f"{self._names[i]} AS t{i}" for i in sorted({*key, *self._lacking}))
        )
        same = " AND ".join(f"origin.k{i} = t{i}" for i in key)
        joined = source.alias("s").join(there, _expr(same), "left")
        from_there = f"(origin IS NOT NULL AND t{key[0]} IS NOT NULL)"
        columns = [
            f"CASE WHEN l{i} AND {from_there} THEN t{i} ELSE n{i} END AS n{i}" if i in self._lacking else f"n{i}"
            for i in self._frames.width
        ]
        marks = [f"(l{i} AND NOT {from_there}) AS l{i}" for i in self._lacking]
        return joined.selectExpr("is_put", "lsn", *(f"k{i}" for i in key), *columns, *marks, "origin", "came")

    # ----------------------------------------------------------------------------------------- tables without a key

    def _repeated(self, source: DataFrame) -> DataFrame:
        """Each row as often as it is to be there."""
        return source.selectExpr(*(f"n{i}" for i in self._frames.width), "explode(sequence(1, more)) AS nth")

    def _exchange(self, source: DataFrame) -> None:
        """Rows may be equal: of each that goes all are taken away, and what remains of them is put back, at once."""
        frames = self._frames
        columns = [f"n{i}" for i in frames.width]
        source = source.selectExpr("*", "monotonically_increasing_id() AS id").localCheckpoint()
        goes, comes = source.where("more < 0"), source.where("more > 0")
        there = frames.spark.table(self._table).selectExpr(*(f"{name} AS t{i}" for i, name in enumerate(self._names)))
        found = goes.select("id", *columns).join(there.selectExpr("*", "1 AS one"), _expr(self._same("t", "n")))
        counts = found.groupBy("id").agg({"one": "sum"}).withColumnRenamed("sum(one)", "many")
        left = "(coalesce(many, 0) + more)"
        remains = goes.join(counts, "id", "left").selectExpr(*columns, self._checked(left))
        puts = self._repeated(comes.selectExpr(*columns, "more").unionByName(remains.where("more > 0")))
        both = goes.selectExpr("false AS is_put", *columns).unionByName(puts.selectExpr("true AS is_put", *columns))
        same = self._same("t.", "s.n", by_name=True)
        values = ", ".join(f"s.n{i}" for i in frames.width)
        self._sql(
            f"MERGE INTO {self._table} AS t USING {self._view(both)} AS s ON NOT s.is_put AND {same}"
            " WHEN MATCHED THEN DELETE"
            f" WHEN NOT MATCHED AND s.is_put THEN INSERT ({', '.join(self._names)}) VALUES ({values})"
        )

    def _same(self, held: str, row: str, *, by_name: bool = False) -> str:
        pairs = []
        for i, column in enumerate(self._frames.schema.columns):
            ours = exact(column, f"{held}{self._names[i]}" if by_name else f"{held}{i}")
            pairs += [f"{a} <=> {b}" for a, b in zip(ours, exact(column, f"{row}{i}"), strict=True)]
        return " AND ".join(pairs)

    def _checked(self, left: str) -> str:
        """How many of a row remain; fewer than none is a mistake where the table was copied."""
        if self._copied is None:
            return f"greatest(0, {left}) AS more"
        return f"CASE WHEN {left} < 0 THEN {raised(self._missing)} ELSE {left} END AS more"

    def _append(self, source: DataFrame) -> None:
        values = ", ".join(f"n{i}" for i in self._frames.width)
        self._sql(f"INSERT INTO {self._table} ({', '.join(self._names)}) SELECT {values} FROM {self._view(source)}")

    # ------------------------------------------------------------------------------------------------------- both

    def _overwrite(self, source: DataFrame) -> None:
        """Everything that was there has gone."""
        values = ", ".join(f"n{i} AS {name}" for i, name in enumerate(self._names))
        self._sql(f"INSERT OVERWRITE {self._table} SELECT {values} FROM {self._view(source)}")

    def _view(self, source: DataFrame) -> str:
        name = f"walrelay_{uuid4().hex}"
        source.createOrReplaceTempView(name)
        return name

    def _sql(self, statement: str) -> None:
        self._frames.spark.sql(statement)


def raised(error: WalrelayError) -> str:
    """SQL that raises the error, whose text comes back with Spark's own."""
    return f"raise_error({literal(error.to_text())})"


def _expr(condition: str) -> Column:
    from pyspark.sql.functions import expr

    return expr(condition)
