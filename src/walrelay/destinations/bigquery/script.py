"""A plan as one script of BigQuery's: a transaction behind a guard, whose errors are ours.

No value of a row stands in it: bounds of keys are variables, which BigQuery reads from the stage itself.
"""

from __future__ import annotations

from collections.abc import Callable

from walrelay.destinations.bigquery.dialect import BigQueryDialect
from walrelay.destinations.warehouse.plan import Plan, Step
from walrelay.errors import WalrelayError
from walrelay.model.schema import Column

_BOUNDED = ("INT64", "STRING", "NUMERIC", "BIGNUMERIC", "DATE", "DATETIME", "TIMESTAMP")
"""Types by whose least and greatest value of a batch a table that is clustered by them is read in part."""
_NESTED = ("ARRAY", "STRUCT", "JSON")


def literal(text: str) -> str:
    """As GoogleSQL writes a string."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


class Script:
    """`named` gives the full name of a place, quoted."""

    def __init__(self, plan: Plan, dialect: BigQueryDialect, named: Callable[[str], str]) -> None:
        self._plan = plan
        self._dialect = dialect
        self._table, self._state, self._stage = named(plan.table), named(plan.state), named(plan.stage)
        self._names = [dialect.quoted(column.name) for column in plan.columns]

    def sql(self) -> str:
        """Takes the parameters since, lsn and copy; gives the position and the copy that are there in the end."""
        declared, bounds = self._bounds()
        steps = ";\n".join([*bounds, *(self._step(step) for step in self._plan.steps)])
        # What fails ends the script, and BigQuery takes its transaction back. No handler does that: one that was
        # cancelled for a conflict has none any more to take back, and the reason would be lost.
        return f"""{declared}DECLARE walrelay_is_here BOOL;
BEGIN TRANSACTION;
SET walrelay_is_here = EXISTS (SELECT 1 FROM {self._state} AS p WHERE p.applied = @since AND p.copy = @copy);
IF walrelay_is_here THEN
{steps};
UPDATE {self._state} AS p SET applied = @lsn WHERE TRUE;
END IF;
COMMIT TRANSACTION;
SELECT applied, copy FROM {self._state};"""

    def _step(self, step: Step) -> str:
        match step:
            case Step.REFUSE_UNSENT:
                return self._refused(f"s.came AND NOT s.early AND {self._lacks}", self._plan.unsent)
            case Step.FILL:
                return self._fill()
            case Step.REFUSE_MISSING:
                return self._refuse_missing()
            case Step.KEEP_REST:
                return self._keep_rest()
            case Step.CLEAR:
                return f"DELETE FROM {self._table} WHERE TRUE"
            case Step.TAKE_AWAY:
                return self._take_away()
            case Step.PUT:
                return self._put()

    # ------------------------------------------------------------------------------------------------ tables with a key

    @property
    def _lacks(self) -> str:
        return "s.is_put AND (" + " OR ".join(f"s.l{i}" for i in self._plan.lacking) + ")"

    @property
    def _stays(self) -> str:
        """What the copy does not have, and a later change takes away again."""
        return f" AND NOT (s.early AND {self._lacks})" if self._plan.lacking else ""

    def _refused(self, where: str, error: WalrelayError) -> str:
        return f"ASSERT NOT EXISTS (SELECT 1 FROM {self._stage} AS s WHERE {where}) AS {literal(error.to_text())}"

    def _refuse_missing(self) -> str:
        if self._plan.key:
            return self._refused(f"{self._lacks} AND NOT s.early", self._plan.missing)
        there = f"SELECT {self._row('t')} AS row_text FROM {self._table} AS t"
        fewer = (
            f"SELECT s.id FROM {self._stage} AS s LEFT JOIN ({there}) AS t ON t.row_text = {self._staged_row()}"
            " WHERE s.more < 0 GROUP BY s.id, s.more HAVING COUNT(t.row_text) + s.more < 0"
        )
        return f"ASSERT NOT EXISTS ({fewer}) AS {literal(self._plan.missing.to_text())}"

    def _fill(self) -> str:
        plan = self._plan
        values = ", ".join(
            f"n{i} = IF(s.l{i}, {self._as_staged(i, f't.{self._names[i]}')}, s.n{i}), l{i} = FALSE"
            for i in plan.lacking
        )
        same = " AND ".join(self._same(i, f"t.{self._names[i]}", f"s.o{i}") for i in plan.key)
        return (
            f"UPDATE {self._stage} AS s SET {values} FROM {self._table} AS t"
            f" WHERE {self._lacks} AND NOT s.came AND {same}"
        )

    def _bounds(self) -> tuple[str, list[str]]:
        """Variables for the least and the greatest key of the batch."""
        plan = self._plan
        if not plan.key or Step.TAKE_AWAY not in plan.steps or self._kind(plan.key[0]) not in _BOUNDED:
            return "", []
        column = f"n{plan.key[0]}"
        declared = f"DECLARE walrelay_low, walrelay_high {self._kind(plan.key[0])};\n"
        return declared, [
            f"SET walrelay_{end} = (SELECT {word}(s.{column}) FROM {self._stage} AS s)"
            for end, word in (("low", "MIN"), ("high", "MAX"))
        ]

    def _take_away(self) -> str:
        plan = self._plan
        if not plan.key:
            goes = f"SELECT {self._staged_row()} FROM {self._stage} AS s WHERE s.more < 0"
            return f"DELETE FROM {self._table} AS t WHERE {self._row('t')} IN ({goes})"
        same = " AND ".join(self._same(i, f"t.{self._names[i]}", f"s.n{i}") for i in plan.key)
        bound = ""
        if self._bounds()[0]:
            bound = f"t.{self._names[plan.key[0]]} BETWEEN walrelay_low AND walrelay_high AND "
        there = f"EXISTS (SELECT 1 FROM {self._stage} AS s WHERE {same}{self._stays})"
        return f"DELETE FROM {self._table} AS t WHERE {bound}{there}"

    # --------------------------------------------------------------------------------------------- tables without a key

    def _row(self, alias: str) -> str:
        """A row's text, by which equal ones are found: numbers in it are exact, and NULL is not ''."""
        fields = ", ".join(f"{alias}.{name} AS c{i}" for i, name in enumerate(self._names))
        return f"TO_JSON_STRING(STRUCT({fields}))"

    def _staged_row(self) -> str:
        fields = ", ".join(f"{self._value(i)} AS c{i}" for i, _ in enumerate(self._names))
        return f"TO_JSON_STRING(STRUCT({fields}))"

    def _keep_rest(self) -> str:
        columns = range(len(self._names))
        values = ", ".join(f"{self._as_staged(i, f't.{self._names[i]}')} AS n{i}" for i in columns)
        listed = ", ".join(f"n{i}" for i in columns)
        return (
            f"INSERT INTO {self._stage} ({listed}, id, more) SELECT {listed}, id, 1 FROM (SELECT {values}, s.id AS id,"
            f" s.more AS more, ROW_NUMBER() OVER (PARTITION BY s.id ORDER BY s.id) AS nth FROM {self._table} AS t"
            f" JOIN {self._stage} AS s ON {self._row('t')} = {self._staged_row()} WHERE s.more < 0)"
            " WHERE nth > -more"
        )

    # ------------------------------------------------------------------------------------------------------------- both

    def _put(self) -> str:
        values = ", ".join(self._value(i) for i in range(len(self._names)))
        where = f"s.is_put{self._stays}" if self._plan.key else "s.more > 0"
        return (
            f"INSERT INTO {self._table} ({', '.join(self._names)}) SELECT {values} FROM {self._stage} AS s"
            f" WHERE {where}"
        )

    def _kind(self, i: int) -> str:
        """A column's type, without what is in brackets."""
        return self._dialect.column_type(self._plan.columns[i]).partition("(")[0].partition("<")[0]

    def _same(self, i: int, ours: str, theirs: str) -> str:
        kind = self._kind(i)
        if kind in _NESTED:
            return f"TO_JSON_STRING({ours}) = TO_JSON_STRING({theirs})"
        if kind == "FLOAT64":  # NaN is a key like any other
            return f"({ours} = {theirs} OR (IS_NAN({ours}) AND IS_NAN({theirs})))"
        return f"{ours} = {theirs}"

    def _value(self, i: int) -> str:
        """A staged value in the table's type."""
        return as_table(self._dialect, self._plan.columns[i], f"s.n{i}")

    def _as_staged(self, i: int, value: str) -> str:
        return f"TO_JSON_STRING({value})" if self._dialect.is_document(self._plan.columns[i]) else value


def as_table(dialect: BigQueryDialect, column: Column, staged: str) -> str:
    """A staged value in the table's type."""
    if dialect.is_document(column):
        return f"PARSE_JSON({staged}, wide_number_mode=>'round')"
    return staged
