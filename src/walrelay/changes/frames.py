"""A table's changes as Spark DataFrames, by Spark's own Parquet reader over the log's files: the frame lane.

Files are taken from the manifest, never from a listing. Each schema version's files are read with that version's
columns, which are then matched, by attribute number, with those that the table has at the batch's end. All names in
these statements are ours (`n3` is column 3 of the new row, `o3` of the old one, `m3` whether its value was left out).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from walrelay.changes.frame_survey import FrameSurvey
from walrelay.changes.shapes import held_columns, match_held
from walrelay.changes.spark_dialect import DIALECT
from walrelay.changes.spark_values import LOG, Holding, change_ddl, literal
from walrelay.changes.table_changes import TableChanges
from walrelay.log.storage import Storage
from walrelay.model.schema import Column, SchemaVersion, TableSchema
from walrelay.model.special import Special
from walrelay.model.visibility import unseen_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Version:
    """The changes of one schema version, as the log has them."""

    schema: TableSchema
    frame: DataFrame
    columns: tuple[Column | None, ...]
    """For each column of the table what it is here; None where this version does not have it."""

    def known(self, places: Iterable[int]) -> Iterator[tuple[int, Column]]:
        for i in places:
            column = self.columns[i]
            if column is not None:
                yield i, column


class TableFrames:
    """One table's part of a batch. `spark` is a session of the lane's own: time zone UTC, names in their case."""

    def __init__(self, spark: SparkSession, storage: Storage, part: TableChanges, holding: Holding) -> None:
        self.spark = spark
        self.schema = part.schema
        self.part = part
        self.holding = holding
        self.key = self._key()
        self._storage = storage
        self._versions = [self._version(version, paths) for version, paths in self._files()]

    def _key(self) -> tuple[int, ...]:
        """Places of the columns by which rows are told apart; none when rows may be equal."""
        names = self.schema.key_columns
        return tuple(i for i, column in enumerate(self.schema.columns) if column.name in names)

    def _files(self) -> Iterator[tuple[SchemaVersion, list[str]]]:
        by_version = sorted(self.part.files, key=lambda pair: pair[0].version)
        for _, pairs in itertools.groupby(by_version, key=lambda pair: pair[0].version):
            found = list(pairs)
            yield found[0][0], [self._storage.location(file.path) for _, file in found]

    def _version(self, version: SchemaVersion, paths: list[str]) -> _Version:
        columns = version.schema.columns
        wanted = f"end_lsn > {int(self.part.after)} AND end_lsn <= {int(self.part.to)}"
        if self.part.unseen_by is not None:
            wanted += f" AND {unseen_sql(self.part.unseen_by)}"
        reader = self.spark.read.schema(change_ddl(columns)).option("datetimeRebaseMode", "CORRECTED")
        now = held_columns(self.schema.columns, DIALECT)
        places = {one.name: i for i, one in enumerate(now)}
        matched: list[Column | None] = [None] * len(now)
        for one in match_held(columns, now, DIALECT):
            if one.held is not None:
                matched[places[one.held.name]] = one.column
        return _Version(version.schema, reader.parquet(*paths).where(wanted), tuple(matched))

    def type_name(self, i: int) -> str:
        """What Spark calls the type of a column."""
        return DIALECT.column_type(self.schema.columns[i])

    def row_type(self) -> str:
        """A row of the table as one Spark type."""
        fields = [(DIALECT.quoted(one.name), DIALECT.column_type(one)) for one in self.schema.columns]
        return DIALECT.struct_of(fields)

    @property
    def width(self) -> range:
        return range(len(self.schema.columns))

    # ------------------------------------------------------------------------------------------------------- survey

    @cached_property
    def survey(self) -> FrameSurvey:
        found = FrameSurvey()
        frames = [self._counted(number, one) for number, one in enumerate(self._versions)]
        rows = {row.number: row for row in reduce(lambda a, b: a.unionByName(b), frames).collect()}
        for number, one in enumerate(self._versions):
            row = rows[number]
            said = {i for (i, _), is_left_out in zip(one.known(self.width), row.left_out, strict=True) if is_left_out}
            # A column that an older shape did not have yet is left alone by its updates.
            left_out = [i for i in self.width if one.columns[i] is None or i in said]
            counted = dict(zip(self._specials(one), row.specials, strict=True))
            specials: dict[int, Counter[Special]] = {}
            for (i, special), count in counted.items():
                specials.setdefault(i, Counter())[special] += count or 0
            found.add(row, left_out if row.updates or row.lacking else (), specials)
            if row.truncates:
                found.add_truncate(self._last_truncate(one))
        return found

    def _last_truncate(self, one: _Version) -> tuple[int, int]:
        """Asked for when there is one: for the sake of it alone Spark would not compile the survey to its fastest."""
        place = one.frame.where("op = 'truncate'").selectExpr("max(struct(commit_lsn, ordinal)) AS place")
        found = place.collect()[0].place
        return found.commit_lsn, found.ordinal

    def _counted(self, number: int, one: _Version) -> DataFrame:
        """Sums and extremes of plain values only: of all else Spark makes objects, row by row."""
        is_old = "old_kind IS NOT NULL"
        goes = "op IN ('update', 'delete')"
        specials = [
            f"coalesce(sum({self.holding.count(column, f'`row`.{LOG.quoted(column.name)}', special)}), 0)"
            for i, special in self._specials(one)
            if (column := one.columns[i]) is not None
        ]
        return one.frame.selectExpr("*", f"{self._moved(one)} AS moved", f"{self._unnamed(one)} AS unnamed").selectExpr(
            f"{number} AS number",
            "count(1) AS changes",
            "count_if(op = 'insert') AS inserts",
            "count_if(op = 'update') AS updates",
            "count_if(op = 'delete') AS deletes",
            f"count_if({is_old}) AS olds",
            "min(commit_lsn) AS first_lsn",
            "max(commit_lsn) AS last_lsn",
            "max(ordinal) AS last_ordinal",
            "max(commit_time) AS last_commit",
            "count_if(op = 'truncate') AS truncates",
            f"count_if({goes} AND unnamed) AS unnamed",
            "count_if(op = 'update' AND moved) AS moves",
            f"count_if(op = 'update' AND moved AND {self._lacks(one)}) AS moved_lacking",
            "count_if(size(`unchanged`) > 0) AS lacking",
            _array("BOOLEAN", [f"max({self._left_out(one, i)})" for i, _ in one.known(self.width)], "left_out"),
            _array("BIGINT", specials, "specials"),
        )

    def _lacks(self, one: _Version) -> str:
        """Whether an update leaves a value out; of a shape that did not have a column yet, every one does."""
        return "true" if None in one.columns else "size(`unchanged`) > 0"

    def _specials(self, one: _Version) -> list[tuple[int, Special]]:
        return [(i, special) for i, column in one.known(self.width) for special in self.holding.specials(column)]

    def _moved(self, one: _Version) -> str:
        pairs = [
            f"`row`.{LOG.quoted(c.name)} IS DISTINCT FROM `old`.{LOG.quoted(c.name)}" for _, c in one.known(self.key)
        ]
        return f"(old_kind IS NOT NULL AND ({' OR '.join(pairs)}))" if pairs else "false"

    def _unnamed(self, one: _Version) -> str:
        if not self.key:
            return "old_kind IS NULL"
        known = dict(one.known(self.key))
        missing = [f"`old`.{LOG.quoted(known[i].name)} IS NULL" if i in known else "true" for i in self.key]
        return f"(old_kind IS NOT NULL AND ({' OR '.join(missing)}))"

    # ------------------------------------------------------------------------------------------------------- events

    def changes(self) -> DataFrame:
        """All of them, truncates too, as they were sent: op, commit_lsn, ordinal, commit_time, `row`, `old`, old_kind,
        `unchanged`, with the columns that the table has at the end under their names then."""
        return reduce(lambda a, b: a.unionByName(b), [self._sent(one) for one in self._versions])

    def _sent(self, one: _Version) -> DataFrame:
        def image(side: str) -> str:
            fields = ", ".join(
                f"{literal(self.schema.columns[i].name)}, {self._landed(one, i, side)}" for i in self.width
            )
            return f"CASE WHEN `{side}` IS NOT NULL THEN named_struct({fields}) END AS `{side}`"

        now = {column.name: self.schema.columns[i].name for i, column in one.known(self.width)}
        pairs = ", ".join(f"{literal(before)}, {literal(after)}" for before, after in now.items())
        unchanged = f"array_compact(transform(`unchanged`, name -> map({pairs})[name])) AS `unchanged`"
        return one.frame.selectExpr(
            "op", "commit_lsn", "ordinal", "commit_time", image("row"), image("old"), "old_kind", unchanged
        )

    def events(self, new: Iterable[int] = (), old: Iterable[int] = ()) -> DataFrame:
        """The changes after the last truncate: q, op, old_kind, commit_lsn, and of the columns asked for the new row's
        n0…, the old row's o0…, in the target's types; m0… for columns that some change left out: whether this one did,
        and the old row does not give the value either."""
        new, old = list(new), list(old)
        return reduce(lambda a, b: a.unionByName(b), [self._flat(one, new, old) for one in self._versions])

    def _flat(self, one: _Version, new: list[int], old: list[int]) -> DataFrame:
        columns = [f"{self.survey.place} AS q", "op", "old_kind", "commit_lsn"]
        for i in new:
            columns.append(f"{self._new(one, i)} AS n{i}")
            if i in self.survey.unchanged:
                columns.append(f"{self._missing(one, i)} AS m{i}")
        columns += [f"{self._landed(one, i, 'old')} AS o{i}" for i in old]
        return one.frame.where(f"op <> 'truncate' AND {self.survey.after_truncate}").selectExpr(*columns)

    def _landed(self, one: _Version, i: int, side: str) -> str:
        """A column of the new or the old row, as it was sent."""
        kind, column = self.type_name(i), one.columns[i]
        if column is None:
            return f"CAST(NULL AS {kind})"
        value = self.holding.value(column, f"`{side}`.{LOG.quoted(column.name)}")
        return value if DIALECT.column_type(column) == kind else f"CAST({value} AS {kind})"

    def _new(self, one: _Version, i: int) -> str:
        """The new row's value; where it was left out and the old row has it, from there."""
        value = self._landed(one, i, "row")
        if one.columns[i] is None or i not in self.survey.unchanged or not self.survey.olds:
            return value
        there = f"{self._left_out(one, i)} AND {self._known(one, i)}"
        return f"CASE WHEN {there} THEN {self._landed(one, i, 'old')} ELSE {value} END"

    def _missing(self, one: _Version, i: int) -> str:
        if one.columns[i] is None:
            return "op = 'update'"
        # Also of an insert: it may be an update by which a row came into the publication's row filter.
        return f"({self._left_out(one, i)} AND NOT {self._known(one, i)})"

    def _left_out(self, one: _Version, i: int) -> str:
        column = one.columns[i]
        assert column is not None
        return f"coalesce(array_contains(`unchanged`, {literal(column.name)}), false)"

    def _known(self, one: _Version, i: int) -> str:
        """Whether the old row has the value of a column that was left out, which never is a NULL: its kind is the
        root's, its values are the partition's, whose identity may be another. Without a key the row is found by all its
        values, or not at all, and a NULL may be one that policy made."""
        column = one.columns[i]
        assert column is not None
        is_there = f"`old`.{LOG.quoted(column.name)} IS NOT NULL"
        return f"({is_there})" if self.key else f"({is_there} OR coalesce(old_kind = 'row', false))"


def _array(kind: str, values: list[str], name: str) -> str:
    return f"CAST(array({', '.join(values)}) AS ARRAY<{kind}>) AS {name}"
