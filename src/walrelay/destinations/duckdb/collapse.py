"""SQL that turns a run of changes into what has to be deleted from, and inserted into, a DuckDB table.

A run is some changes of one table under one schema version, in any order. A change's place in the order is `q`; a row
that goes is at 2q and one that comes at 2q + 1, so that an update which changes the key first takes away, then puts.
All names in these statements are ours (`n3` is column 3 of the new row) but for the destination's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from walrelay.changes.shapes import match_held
from walrelay.destinations.duckdb.dialect import DIALECT, column_type, holds_interval, projection, quoted
from walrelay.destinations.duckdb.progress import NO_COLUMNS
from walrelay.destinations.duckdb.survey import Survey, literal
from walrelay.destinations.holdings import Shape
from walrelay.model.schema import Column, PgType, TableSchema

LAST, HELD, TOUCHES, LINKS = "_walrelay_last", "_walrelay_held", "_walrelay_touches", "_walrelay_links"
EVENTS, NET, PICKED = "_walrelay_events", "_walrelay_net", "_walrelay_picked"
TEMPORARY = (LAST, HELD, TOUCHES, LINKS, EVENTS, NET, PICKED)


class Run:
    """The statements for a run. `source` is SQL of a relation with the columns of a change, cut to the run."""

    def __init__(
        self, schema: TableSchema, shape: Shape, table: str, source: str, survey: Survey, *, whole: bool
    ) -> None:
        self.schema = schema
        self.shape = shape
        self.table = table
        self.source = source
        self.survey = survey
        self.whole = whole
        """Whether the table was copied, so that a row which is not there is a mistake."""
        theirs = {one.held.name: one.column for one in match_held(schema.columns, shape.columns, DIALECT) if one.held}
        self._columns: list[Column | None] = [theirs.get(one.name) for one in shape.columns]
        self.key = self._key()
        self.after_truncate: int | None = None
        self._unchanged: list[int] = []
        self._is_flat = False

    def _key(self) -> tuple[int, ...]:
        """The columns by which rows are told apart, as places in the destination; none when rows may be equal.

        Of all rows that were put under a key the destination has the last one, whatever became of the others: a
        publication may leave out updates and deletes.
        """
        wanted = set(self.schema.key_columns)
        places = tuple(i for i, column in enumerate(self._columns) if column is not None and column.name in wanted)
        return places if len(places) == len(wanted) else ()

    # ------------------------------------------------------------------------------------------------------ looking

    def last_truncate_sql(self) -> str:
        return f"SELECT max({self._place}) FROM {self.source} WHERE op = 'truncate'"

    def unchanged_sql(self) -> str:
        return f"SELECT DISTINCT unnest(unchanged) FROM {self.source}"

    def mark_unchanged(self, names: Iterable[str]) -> None:
        """Tell which columns were left out somewhere because they did not change."""
        wanted = set(names)
        # A column that an older shape did not have yet is left alone by its changes.
        self._unchanged = [i for i, column in enumerate(self._columns) if column is None or column.name in wanted]

    @property
    def _all(self) -> range:
        return range(len(self._columns))

    @property
    def lacks_values(self) -> bool:
        """Whether a new row's value may have to be looked for elsewhere."""
        return bool(self._unchanged)

    @property
    def _place(self) -> str:
        return self.survey.place

    @property
    def _has_old(self) -> bool:
        return self.survey.olds > 0

    def events(self, new: Iterable[int] = (), old: Iterable[int] = (), *, marks: bool = False) -> str:
        """The changes after the last truncate: q, op, old_kind, and of the columns asked for the new row's n0…, the old
        row's o0…, in the destination's types. With `marks` also m0… for columns that some change left out: whether this
        one did, and the old row does not give the value either.

        Only what is asked for, since DuckDB takes longer to read a long statement than to carry out a small one.
        """
        if self._is_flat:
            return EVENTS
        marked = set(self._unchanged) if marks else set()
        inner = [f"{self._place} AS q", "op", "old_kind"]
        outer = ["q", "op", "old_kind"]
        wanted = sorted({*new, *old, *marked})
        if not marked.isdisjoint(wanted) or not set(self._unchanged).isdisjoint(new):
            inner.append("unchanged")
        for i in wanted:
            column = self._columns[i]
            if column is not None:
                inner.append(f'struct_extract("row", {literal(column.name)}) AS n{i}')
                if self._has_old:
                    inner.append(f'struct_extract("old", {literal(column.name)}) AS o{i}')
            outer += [f"{self._new(i)} AS n{i}"] if i in new else []
            outer += [f"{self._landed(i, 'o')} AS o{i}"] if i in old else []
            outer += [f"{self._missing(i)} AS m{i}"] if i in marked else []
        cut = f" WHERE {self._place} > {self.after_truncate}" if self.after_truncate is not None else ""
        return f"(SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {self.source}{cut}))"

    def flatten_sql(self) -> str:
        """Make EVENTS, from which everything else is read then: for a run that is soon read, and looked at often."""
        events = self.events(self._all, self._all if self._has_old else (), marks=True)
        self._is_flat = True
        return f"CREATE OR REPLACE TEMP TABLE {EVENTS} AS SELECT * FROM {events}"

    def _landed(self, i: int, side: str) -> str:
        """A column of the new or the old row, as it was sent."""
        column, kind = self._columns[i], self.shape.columns[i].type
        if column is None or (side == "o" and not self._has_old):
            return f"CAST(NULL AS {kind})"
        value = projection(column, f"{side}{i}")
        return value if column_type(column) == kind else f"CAST({value} AS {kind})"

    def _new(self, i: int) -> str:
        """The new row's value; where it was left out and the old row has it, from there."""
        if i not in self._unchanged or not self._has_old or self._columns[i] is None:
            return self._landed(i, "n")
        there = f"{self._left_out(i)} AND {self._known(i)}"
        return f"CASE WHEN {there} THEN {self._landed(i, 'o')} ELSE {self._landed(i, 'n')} END"

    def _missing(self, i: int) -> str:
        if self._columns[i] is None:
            return "op = 'update'"
        # Also of an insert: it may be an update by which a row came into the publication's row filter.
        return f"{self._left_out(i)} AND NOT {self._known(i)}"

    def _left_out(self, i: int) -> str:
        column = self._columns[i]
        assert column is not None
        return f"coalesce(list_contains(unchanged, {literal(column.name)}), false)"

    def _known(self, i: int) -> str:
        """Whether the old row has the value of a column that was left out, which never is a NULL.

        By what it holds: its kind is the root's, its values are the partition's, whose identity may be another. Without
        a key the row is found by all its values, or not at all, and a NULL may be one that policy made.
        """
        if not self._has_old:
            return "false"
        return f"o{i} IS NOT NULL" if self.key else f"(o{i} IS NOT NULL OR coalesce(old_kind = 'row', false))"

    # -------------------------------------------------------------------------------------------- tables with a key

    def _keys(self, side: str) -> str:
        return ", ".join(f"{side}{i} AS k{i}" for i in self.key)

    @property
    def _moved(self) -> str:
        return "old_kind IS NOT NULL AND (" + " OR ".join(f"n{i} IS DISTINCT FROM o{i}" for i in self.key) + ")"

    def touches(self, extra: Callable[[str], str] = lambda _: "") -> str:
        """Every key that a row leaves or takes, with the place `s` in the order."""
        events = self.events(self.key, self.key if self._has_old else ())
        parts = [
            f"SELECT {self._keys('n')}, 2 * q + 1 AS s{extra('put')} FROM {events} WHERE op IN ('insert', 'update')"
        ]
        if self._has_old:
            leaves = f"op = 'delete' OR (op = 'update' AND {self._moved})"
            parts.append(f"SELECT {self._keys('o')}, 2 * q AS s{extra('gone')} FROM {events} WHERE {leaves}")
        return " UNION ALL ".join(parts)

    def last(self) -> str:
        """For each key the last that happened to it."""
        grouped = ", ".join(f"k{i}" for i in self.key)
        return f"(SELECT {grouped}, max(s) AS s FROM ({self.touches()}) GROUP BY {grouped})"

    def has_no_key_sql(self) -> str:
        """How many keys that LAST names are not whole. Of old rows this may be because they were named otherwise."""
        return f"SELECT count(*) FROM {LAST} WHERE {' OR '.join(f'k{i} IS NULL' for i in self.key)}"

    def unnamed_sql(self) -> str:
        """How many rows that go are not named by the key; without one, not at all."""
        lacking = " OR ".join(f"o{i} IS NULL" for i in self.key)
        unnamed = f"old_kind IS NOT NULL AND ({lacking})" if self.key else "old_kind IS NULL"
        return f"SELECT count(*) FROM {self.events((), self.key)} WHERE op IN ('update', 'delete') AND {unnamed}"

    def named_by_key_sql(self) -> str:
        """How many rows that go say of themselves that they are named by a key."""
        return f"SELECT count(*) FROM {self.events()} WHERE old_kind = 'key'"

    def delete_sql(self, keys: str) -> str:
        return f"DELETE FROM {self.table} AS d USING {keys} AS l WHERE {self._same_key('d', 'l')}"

    def _same_key(self, held: str, keys: str) -> str:
        return " AND ".join(f"{held}.{quoted(self.shape.columns[i].name)} = {keys}.k{i}" for i in self.key)

    def insert_all_sql(self) -> str:
        values = ", ".join(f"n{i}" for i in self._all)
        return f"{self._into()} SELECT {values} FROM {self.events(self._all)} WHERE op IN ('insert', 'update')"

    def insert_last_sql(self, last: str, *, held: bool) -> str:
        """Insert what was put last under each key, and not taken away."""
        values = ", ".join(
            f"CASE WHEN e.m{i} THEN h.v{i} ELSE e.n{i} END" if held and i in self._unchanged else f"e.n{i}"
            for i in self._all
        )
        joined = f" LEFT JOIN {HELD} AS h ON h.s = 2 * e.q + 1" if held else ""
        kept = " WHERE h.s IS NULL OR NOT h.unfounded" if held else ""
        source = f"{self.events(self._all, marks=held)} AS e JOIN {last} AS l ON l.s = 2 * e.q + 1"
        return f"{self._into()} SELECT {values} FROM {source}{joined}{kept}"

    def _into(self) -> str:
        return f"INSERT INTO {self.table} ({', '.join(quoted(one.name) for one in self.shape.columns)})"

    # ------------------------------------------------------------------------------------- values that were not sent

    @property
    def _sendable(self) -> list[int]:
        """Columns that some change left out, and might have brought."""
        return [i for i in self._unchanged if self._columns[i] is not None]

    def unsent_sql(self, source: str, mark: str) -> str:
        """The columns of `source` that are marked so somewhere."""
        names = (f"CASE WHEN bool_or({mark}{i}) THEN {literal(self.shape.columns[i].name)} END" for i in self._sendable)
        return f"SELECT [{', '.join(names)}], count(*) FROM {source}"

    def unsent_loose_sql(self) -> str:
        """Without a key there is no looking for a value elsewhere."""
        return self.unsent_sql(self.events(marks=True), "m")

    @property
    def _lacking(self) -> str:
        return "(" + " OR ".join(f"m{i}" for i in self._unchanged) + ")"

    def has_moved_lacking_sql(self) -> str:
        """Whether a row took another key and left a value behind under the old one."""
        events = self.events(self.key, self.key, marks=True)
        return f"SELECT count(*) FROM {events} WHERE op = 'update' AND {self._moved} AND {self._lacking}"

    @property
    def may_have_moved(self) -> bool:
        return self._has_old

    def held_sql(self, *, by_life: bool, copied_lsn: int | None) -> str:
        """Make HELD: for each row that is put last and lacks values, those values: the last that the run has for the
        row, else the destination's. `by_life` follows the row through changes of its key (see `touches_sql`).

        What was there before the row was inserted is another's; or its own, from before it left the publication's row
        filter, and it may have changed outside. Columns of which nothing has come since are marked, `u0`….
        """
        keys = [f"k{i}" for i in self.key]
        marked, events = self.events(marks=True), self.events({*self.key, *self._unchanged}, marks=True)
        if by_life:
            wanted = f"SELECT l.s, t.life, {', '.join(f't.origin.k{i} AS k{i}' for i in self.key)}" + (
                f" FROM {LAST} AS l JOIN {TOUCHES} AS t ON t.s = l.s JOIN {marked} AS e ON 2 * e.q + 1 = l.s"
                f" WHERE {self._lacking}"
            )
            same = "t.life = w.life"
            story = f"(SELECT e.*, t.life FROM {events} AS e JOIN {TOUCHES} AS t ON t.s = 2 * e.q + 1) AS t"
        else:
            wanted = f"SELECT l.* FROM {LAST} AS l JOIN {marked} AS e ON 2 * e.q + 1 = l.s WHERE {self._lacking}"
            same = " AND ".join(f"t.n{i} = w.{key}" for i, key in zip(self.key, keys, strict=True))
            story = f"{events} AS t"
        # Where the value is, not the value: what an aggregate keeps of a nested value only compares equal.
        found = ", ".join(f"max(t.q) FILTER (NOT t.m{i}) AS b{i}" for i in self._unchanged)
        began = "max(t.q) FILTER (t.op = 'insert') AS began"
        lacks = ", ".join(f"arg_max(t.m{i}, t.q) AS m{i}" for i in self._unchanged)
        since = ", ".join(f"CASE WHEN b{i} < began THEN NULL ELSE b{i} END AS b{i}" for i in self._unchanged)
        names = [quoted(one.name) for one in self.shape.columns]
        values = ", ".join(
            f"CASE WHEN b.b{i} IS NULL THEN d.{names[i]} ELSE e{i}.n{i} END AS v{i}" for i in self._unchanged
        )
        sent = "".join(f" LEFT JOIN {self.events([i])} AS e{i} ON e{i}.q = b.b{i}" for i in self._unchanged)
        nowhere = " OR ".join(f"(b.b{i} IS NULL AND b.m{i})" for i in self._unchanged)
        # `unfounded`: there is no such row. In a table that changes alone have made it may have been there before; what
        # a copy does not have any more, a later change takes away again (SEMANTICS 8, standbys).
        gone = f"d.{names[self.key[0]]} IS NULL AND ({nowhere})" if self.whole else "false"
        early = f"b.lsn <= {int(copied_lsn)}" if copied_lsn is not None else "false"
        lost = f"{gone} AND NOT ({early}) AS lost"
        unsent = "".join(f", b.began IS NOT NULL AND b.b{i} IS NULL AND NOT ({early}) AS u{i}" for i in self._sendable)
        grouped = ", ".join(f"w.{key}" for key in keys)
        return (
            f"CREATE OR REPLACE TEMP TABLE {HELD} AS WITH w AS ({wanted}), b AS (SELECT w.s, {grouped}, max(t.q) AS q,"
            f" {began}, {found}, {lacks} FROM w JOIN {story} ON {same} WHERE t.op IN ('insert', 'update')"
            f" AND 2 * t.q + 1 <= w.s"
            f" GROUP BY w.s, {grouped}) SELECT b.s, {values}, {gone} AS unfounded, {lost}{unsent}"
            f" FROM (SELECT * REPLACE ({since}), {self._lsn_of('q')} AS lsn FROM b) AS b LEFT JOIN {self.table} AS d"
            f" ON {self._same_key('d', 'b')}{sent}"
        )

    def _lsn_of(self, place: str) -> str:
        return f"({self.survey.first_lsn} + ({place} - 1) // {self.survey.last_ordinal + 1})"

    def touches_sql(self) -> str:
        """Make TOUCHES: every key that a row leaves or takes, with the `epoch` of the row that had it then.

        An epoch of a key begins when a row takes it; its name is the place where. The row that was there before the run
        has one without a beginning, with a negative name.
        """
        over = ", ".join(f"k{i}" for i in self.key)
        arrivals = {"put": f"op = 'insert' OR {self._moved}" if self._has_old else "op = 'insert'", "gone": "false"}
        moves = {"put": f"op = 'update' AND {self._moved}" if self._has_old else "false", "gone": "false"}
        touches = self.touches(lambda side: f", {arrivals[side]} AS arrives, {moves[side]} AS moves")
        began = f"max(s) FILTER (arrives) OVER (PARTITION BY {over} ORDER BY s ROWS UNBOUNDED PRECEDING)"
        epoch = f"coalesce({began}, -min(s) OVER (PARTITION BY {over}))"
        return f"CREATE OR REPLACE TEMP TABLE {TOUCHES} AS SELECT *, {epoch} AS epoch FROM ({touches})"

    def links_sql(self) -> str:
        """Make LINKS: for each epoch that began with a change of key, the epoch that the row came from."""
        return (
            f"CREATE OR REPLACE TEMP TABLE {LINKS} AS SELECT t.s AS child, f.epoch AS parent FROM {TOUCHES} AS t"
            f" JOIN {TOUCHES} AS f ON f.s = t.s - 1 WHERE t.moves"
        )

    def lives_sql(self) -> str:
        """Add to TOUCHES the row's `life`, which is its first epoch, and its `origin`: its key in the destination."""
        origin = "{" + ", ".join(f"'k{i}': k{i}" for i in self.key) + "}"
        roots = f"SELECT epoch, any_value({origin}) AS origin FROM {TOUCHES} WHERE epoch < 0 GROUP BY epoch"
        lives = (
            f"SELECT t.*, coalesce(l.parent, t.epoch) AS life FROM {TOUCHES} AS t"
            f" LEFT JOIN {LINKS} AS l ON l.child = t.epoch"
        )
        return (
            f"CREATE OR REPLACE TEMP TABLE {TOUCHES} AS SELECT t.*, r.origin FROM ({lives}) AS t"
            f" LEFT JOIN ({roots}) AS r ON r.epoch = t.life"
        )

    # ------------------------------------------------------------------------------------- tables without a column

    def more_sql(self) -> str:
        """How many more rows there are, or fewer. They are all alike."""
        return f"SELECT count(*) FILTER (op = 'insert') - count(*) FILTER (op = 'delete') FROM {self.events()}"

    def insert_bare_sql(self, rows: int) -> str:
        return f"INSERT INTO {self.table} ({NO_COLUMNS}) SELECT NULL FROM range({rows})"

    def delete_bare_sql(self, rows: int) -> str:
        return f"DELETE FROM {self.table} WHERE rowid IN (SELECT rowid FROM {self.table} LIMIT {rows})"

    # ----------------------------------------------------------------------------------------- tables without a key

    def net_sql(self) -> str:
        """Make NET: how many more or fewer of each row there are."""
        events = self.events(self._all, self._all if self._has_old else ())
        places = self._all
        comes = ", ".join(f"n{i} AS c{i}" for i in places)
        goes = ", ".join(f"o{i} AS c{i}" for i in places)
        moves = f"SELECT {comes}, 1 AS n, 2 * q + 1 AS s FROM {events} WHERE op IN ('insert', 'update')"
        if self._has_old:
            moves += f" UNION ALL SELECT {goes}, -1 AS n, 2 * q AS s FROM {events} WHERE op IN ('update', 'delete')"
        keys = ", ".join(term for i in places for term in self._kind(i))
        # The values come from one of the changes, not from the groups: what DuckDB keeps of a nested value in an
        # aggregate is a value that compares equal, 0.0 for -0.0.
        groups = f"SELECT max(s) AS s, CAST(sum(n) AS BIGINT) AS n FROM moves GROUP BY {keys} HAVING sum(n) <> 0"
        values = ", ".join(f"m.c{i}" for i in places)
        return (
            f"CREATE OR REPLACE TEMP TABLE {NET} AS WITH moves AS ({moves}), groups AS ({groups})"
            f" SELECT g.s AS id, g.n, {values} FROM groups AS g JOIN moves AS m ON m.s = g.s"
        )

    def insert_net_sql(self) -> str:
        values = ", ".join(f"c{i}" for i in self._all)
        return f"{self._into()} SELECT {values} FROM (SELECT *, unnest(range(n)) FROM {NET} WHERE n > 0)"

    def pick_exact_sql(self) -> str:
        """Make PICKED: for each row that goes a row of the destination, equal in every column."""
        same = " AND ".join(self._equal(i) for i in self._all)
        return f"CREATE OR REPLACE TEMP TABLE {PICKED} AS {self._pick(same, f'(SELECT * FROM {NET} WHERE n < 0)')}"

    def pick_similar_sql(self) -> str:
        """Add to PICKED rows that are equal but for columns that came later, whose value here is not known."""
        same = " AND ".join(
            f"({self._equal(i)} OR d.{quoted(one.name)} IS NULL)" if one.added else self._equal(i)
            for i, one in enumerate(self.shape.columns)
        )
        counts = f"(SELECT id, count(*) AS many FROM {PICKED} GROUP BY id) AS p"
        still = "n.n + coalesce(p.many, 0)"
        left = (
            f"(SELECT n.* REPLACE ({still} AS n) FROM {NET} AS n LEFT JOIN {counts} ON p.id = n.id WHERE {still} < 0)"
        )
        free = f" AND d.rowid NOT IN (SELECT row_id FROM {PICKED})"
        chosen = self._pick(f"{same}{free}", left)
        # Two rows that go may ask for the same one: the first has it, the other asks again.
        return f"INSERT INTO {PICKED} SELECT min(id), row_id FROM ({chosen}) GROUP BY row_id"

    def _pick(self, same: str, wanted: str) -> str:
        number = "row_number() OVER (PARTITION BY w.id) AS number"
        pairs = f"SELECT w.id, w.n, d.rowid AS row_id, {number} FROM {self.table} AS d JOIN {wanted} AS w ON {same}"
        return f"SELECT id, row_id FROM ({pairs}) WHERE number <= -n"

    def missing_sql(self) -> str:
        """How many rows that go were not found."""
        return f"SELECT coalesce(-sum(n) FILTER (n < 0), 0) - (SELECT count(*) FROM {PICKED}) FROM {NET}"

    def delete_picked_sql(self) -> str:
        return f"DELETE FROM {self.table} WHERE rowid IN (SELECT row_id FROM {PICKED})"

    @property
    def hides_row_ids(self) -> bool:
        """Whether a column has the name by which DuckDB calls a row's place."""
        return any(one.name.lower() == "rowid" for one in self.shape.columns)

    @property
    def has_added(self) -> bool:
        return any(one.added for one in self.shape.columns)

    def _equal(self, i: int) -> str:
        if self._columns[i] is None:
            return "true"
        held = self._exactly(i, f"d.{quoted(self.shape.columns[i].name)}")
        return " AND ".join(
            f"{a} IS NOT DISTINCT FROM {b}" for a, b in zip(held, self._exactly(i, f"w.c{i}"), strict=True)
        )

    def _kind(self, i: int) -> list[str]:
        """What to group by, so that only rows with the same value meet."""
        exactly = self._exactly(i, f"c{i}")
        return exactly if len(exactly) == 1 else [f"hash(c{i})", *exactly[1:]]

    def _exactly(self, i: int, value: str) -> list[str]:
        """What must be equal for two values to be the same: DuckDB takes 0 and -0, 1 month and 30 days for equal."""
        column = self._columns[i]
        if column is None or column.as_text or not _is_loose(column.type):
            return [value]
        if column.type.name in {"float4", "float8"} and column.type.kind == "base":
            return [value, f"(signbit({value}) AND NOT isnan({value}))"]
        return [value, f"CAST({value} AS VARCHAR)"]


def _is_loose(type_: PgType) -> bool:
    """Whether DuckDB calls some values of the type equal that are not the same."""
    if holds_interval(type_):
        return True
    if type_.kind == "base":
        return type_.name in {"float4", "float8", "vector", "halfvec"}
    parts = [part.type for part in type_.fields] + ([type_.element] if type_.element else [])
    return any(_is_loose(part) for part in parts)
