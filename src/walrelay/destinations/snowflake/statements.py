"""A plan as statements of Snowflake's, one after the other in a transaction of one session."""

from __future__ import annotations

from walrelay.destinations.snowflake.dialect import SnowflakeDialect
from walrelay.destinations.warehouse.plan import Plan, Step


class Statements:
    def __init__(self, plan: Plan, dialect: SnowflakeDialect) -> None:
        self._plan = plan
        self._dialect = dialect
        self._table, self._stage = name(plan.table), name(plan.stage)
        self._state = name(plan.state)
        self._names = [dialect.quoted(column.name) for column in plan.columns]

    def guard(self) -> str:
        """First of all: whoever else writes to the table waits here, and then finds it elsewhere (Snowflake reads what
        was committed meanwhile). Takes lsn, since, copy; changes one row, or none when the table is elsewhere."""
        return f'UPDATE {self._state} SET "applied" = ? WHERE "applied" = ? AND "copy" = ?'

    def refusal(self, step: Step) -> str | None:
        """A question that counts what is wrong, if the step is one that looks."""
        match step:
            case Step.REFUSE_UNSENT:
                return f'SELECT COUNT(*) FROM {self._stage} AS s WHERE s."came" AND NOT s."early" AND {self._lacks}'
            case Step.REFUSE_MISSING if self._plan.key:
                return f'SELECT COUNT(*) FROM {self._stage} AS s WHERE {self._lacks} AND NOT s."early"'
            case Step.REFUSE_MISSING:
                fewer = (
                    f'SELECT s."id" FROM {self._stage} AS s LEFT JOIN (SELECT t.*, 1 AS "walrelay_one" FROM'
                    f' {self._table} AS t) AS t ON {self._equal()} WHERE s."more" < 0 GROUP BY s."id", s."more"'
                    ' HAVING COUNT(t."walrelay_one") + s."more" < 0'
                )
                return f"SELECT COUNT(*) FROM ({fewer}) AS fewer"
            case _:
                return None

    def statement(self, step: Step) -> str:
        match step:
            case Step.FILL:
                return self._fill()
            case Step.KEEP_REST:
                return self._keep_rest()
            case Step.CLEAR:
                return f"DELETE FROM {self._table}"
            case Step.TAKE_AWAY:
                return self._take_away()
            case Step.PUT:
                return self._put()
            case _:
                raise AssertionError(f"{step} is a question")

    @property
    def _lacks(self) -> str:
        return 's."is_put" AND (' + " OR ".join(f's."l{i}"' for i in self._plan.lacking) + ")"

    @property
    def _stays(self) -> str:
        """What the copy does not have, and a later change takes away again."""
        return f' AND NOT (s."early" AND {self._lacks})' if self._plan.lacking else ""

    def _fill(self) -> str:
        plan = self._plan
        values = ", ".join(
            f'"n{i}" = IFF(s."l{i}", t.{self._names[i]}, s."n{i}"), "l{i}" = FALSE' for i in plan.lacking
        )
        same = " AND ".join(self._same(i, f's."o{i}"') for i in plan.key)
        return (
            f"UPDATE {self._stage} AS s SET {values} FROM {self._table} AS t"
            f' WHERE {self._lacks} AND NOT s."came" AND {same}'
        )

    def _take_away(self) -> str:
        plan = self._plan
        if not plan.key:
            return f'DELETE FROM {self._table} AS t USING {self._stage} AS s WHERE s."more" < 0 AND {self._equal()}'
        same = " AND ".join(self._same(i, f's."n{i}"') for i in plan.key)
        first = plan.key[0]
        ends = f'SELECT {{}}(b."n{first}") FROM {self._stage} AS b'
        # So that what lies outside is not even looked at: rows are kept with the least and the greatest of each part.
        bound = f"t.{self._names[first]} BETWEEN ({ends.format('MIN')}) AND ({ends.format('MAX')}) AND "
        return (
            f"DELETE FROM {self._table} AS t USING {self._stage} AS s"
            f" WHERE {bound if self._is_ordered(first) else ''}{same}{self._stays}"
        )

    def _keep_rest(self) -> str:
        columns = range(len(self._names))
        listed = ", ".join(f'"n{i}"' for i in columns)
        values = ", ".join(f't.{self._names[i]} AS "n{i}"' for i in columns)
        return (
            f'INSERT INTO {self._stage} ({listed}, "id", "more") SELECT {listed}, "id", 1 FROM (SELECT {values},'
            f' s."id" AS "id", s."more" AS "more", ROW_NUMBER() OVER (PARTITION BY s."id" ORDER BY s."id") AS "nth"'
            f' FROM {self._table} AS t JOIN {self._stage} AS s ON {self._equal()} WHERE s."more" < 0) AS found'
            ' WHERE "nth" > -"more"'
        )

    def _put(self) -> str:
        values = ", ".join(f's."n{i}"' for i in range(len(self._names)))
        where = f's."is_put"{self._stays}' if self._plan.key else 's."more" > 0'
        return (
            f"INSERT INTO {self._table} ({', '.join(self._names)}) SELECT {values} FROM {self._stage} AS s"
            f" WHERE {where}"
        )

    def _is_ordered(self, i: int) -> bool:
        kind = self._dialect.column_type(self._plan.columns[i])
        return kind in ("VARCHAR", "DATE") or kind.startswith(("NUMBER", "TIMESTAMP"))

    def _same(self, i: int, staged: str) -> str:
        return f"t.{self._names[i]} = {staged}"

    def _equal(self) -> str:
        """Whether a row of the table and one of the stage are the same, in every value: 0.0 is not -0.0."""
        pairs = []
        for i, column in enumerate(self._plan.columns):
            ours, theirs = f"t.{self._names[i]}", f's."n{i}"'
            pairs.append(f"EQUAL_NULL({ours}, {theirs})")
            if self._dialect.column_type(column) == "FLOAT":
                pairs.append(f"EQUAL_NULL(TO_VARCHAR({ours}), TO_VARCHAR({theirs}))")
        return " AND ".join(pairs)


def name(place: str) -> str:
    """A place as a statement has it, exactly."""
    return '"' + place.replace('"', '""') + '"'
