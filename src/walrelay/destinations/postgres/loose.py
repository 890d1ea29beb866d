"""A piece of changes into a table whose rows may be equal: for each that goes exactly one is taken away (SEMANTICS 15).

What comes is put there first: equal rows are interchangeable, so that only their number counts in the end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.refusals import identity_hint, unnamed_rows, unsent_values
from walrelay.decode.base import Tally
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.collapse import DELETE, INSERT, flags_of
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.piece import Piece
from walrelay.destinations.postgres.places import place
from walrelay.destinations.postgres.stages import Stages
from walrelay.errors import MissingRowError, UnnamedRowError


class LoosePiece:
    """The statements for one piece. `whole`: the table was copied, so that a row which is not there is a mistake."""

    def __init__(self, connection: Connection, stages: Stages, piece: Piece, tally: Tally, *, whole: bool) -> None:
        self._connection = connection
        self._stages = stages
        self._piece = piece
        self._tally = tally
        self._whole = whole
        self._table = place(piece.shape.name)
        self._columns = piece.shape.columns
        self._known = [i for i, theirs in enumerate(piece.theirs) if theirs is not None]

    def take(self) -> None:
        piece = self._piece
        if not len(piece):
            return
        comes, goes = np.flatnonzero(piece.ops != DELETE), np.flatnonzero(piece.ops != INSERT)
        if not self._columns:
            self._take_bare(len(comes) - len(goes))
            return
        if len(goes) and (unnamed := piece.unnamed()):
            raise unnamed_rows(piece.schema, unnamed)
        lacking = piece.lacking()
        if names := [self._columns[i].name for i in lacking if piece.column(i) is not None]:
            raise unsent_values(piece.schema, names)
        if len(comes):
            self._insert(comes)
        if len(goes):
            self._delete(goes)

    def _insert(self, places: np.ndarray) -> None:
        columns = tuple((f"c{i}", one.type) for i, one in enumerate(self._columns))
        arrays = [self._piece.new_text(i, places, self._tally) for i in range(len(columns))]
        stage = self._stages.fill(self._connection, "comes", columns, arrays)
        names = ", ".join(quoted(one.name) for one in self._columns)
        run(self._connection, f"INSERT INTO {self._table} ({names}) SELECT * FROM {stage}")

    def _delete(self, places: np.ndarray) -> None:
        uncounted = Tally(self._tally.target, self._tally.special_values)
        columns = [("g", "bigint"), *((f"c{i}", self._columns[i].type) for i in self._known)]
        arrays = [pa.array(np.arange(len(places)))]
        arrays += [self._piece.old_text(i, places, uncounted) for i in self._known]
        goes = self._stages.fill(self._connection, "goes", tuple(columns), arrays)
        picked = self._stages.fill(
            self._connection, "picked", (("g", "bigint"), ("id", "tid")), [pa.array([], pa.int64()), pa.array([])]
        )
        run(self._connection, self._pick_equal(goes, picked))
        missing = self._missing(goes, picked)
        while missing and any(one.added for one in self._columns):
            run(self._connection, self._pick_similar(goes, picked))
            before, missing = missing, self._missing(goes, picked)
            if missing == before:
                break
        self._refuse_missing(missing)
        run(self._connection, f"DELETE FROM {self._table} t USING {picked} p WHERE t.ctid = p.id")

    def _row(self, side: str, prefix: str | None) -> str:
        """The row's text, which differs where any bit of a value does."""
        names = (f"{side}.{quoted(self._columns[i].name) if prefix is None else f'{prefix}{i}'}" for i in self._known)
        return f"ROW({', '.join(names)})::text"

    def _pick_equal(self, goes: str, picked: str) -> str:
        """For each row that goes one of the table, equal in every column; of equal ones the first for the first."""
        wanted = f"SELECT g.g, {self._row('g', 'c')} AS line FROM {goes} g"
        there = f"SELECT t.ctid AS id, {self._row('t', None)} AS line FROM {self._table} t"
        number = "row_number() OVER (PARTITION BY line) AS number"
        return (
            f"WITH w AS MATERIALIZED ({wanted}), h AS (SELECT h.id, h.line FROM ({there}) h WHERE h.line IN"
            f" (SELECT line FROM w)) INSERT INTO {picked} SELECT w.g, h.id FROM (SELECT *, {number} FROM w) w"
            f" JOIN (SELECT *, {number} FROM h) h USING (line, number)"
        )

    def _pick_similar(self, goes: str, picked: str) -> str:
        """Rows that are equal but for columns that came later, whose value here is not known."""
        tests = []
        for i in self._known:
            name = f"t.{quoted(self._columns[i].name)}"
            same = f"{name}::text IS NOT DISTINCT FROM g.c{i}::text"
            tests.append(f"({same} OR {name} IS NULL)" if self._columns[i].added else same)
        free = (
            f"NOT EXISTS (SELECT FROM {picked} p WHERE p.id = t.ctid)"
            f" AND NOT EXISTS (SELECT FROM {picked} p WHERE p.g = g.g)"
        )
        pairs = (
            f"SELECT DISTINCT ON (g.g) g.g, t.ctid AS id FROM {goes} g JOIN {self._table} t ON {' AND '.join(tests)}"
        )
        return f"INSERT INTO {picked} SELECT DISTINCT ON (id) g, id FROM ({pairs} WHERE {free}) AS found"

    def _missing(self, goes: str, picked: str) -> int:
        ((count,),) = rows(self._connection, f"SELECT (SELECT count(*) FROM {goes}) - (SELECT count(*) FROM {picked})")
        return int(count)

    def _refuse_missing(self, missing: int) -> None:
        schema = self._piece.schema
        if missing and self._whole:
            raise MissingRowError(f"{missing} rows that changes of {schema.name} take away are not there")
        if missing and flags_of(pc.equal(self._piece.old_kind, "key")).any():
            # Where there was no copy a row may have been there before; but not one that is half named.
            raise UnnamedRowError(
                f"{missing} rows that changes of {schema.name} take away are named by a key which it does not have",
                hint=identity_hint(schema),
            )

    def _take_bare(self, more: int) -> None:
        """A table without columns holds as many rows as its source."""
        if more > 0:
            run(self._connection, f"INSERT INTO {self._table} SELECT FROM pg_catalog.generate_series(1, {more})")
        elif more < 0:
            chosen = f"SELECT ctid FROM {self._table} LIMIT {-more}"
            gone = run(self._connection, f"DELETE FROM {self._table} WHERE ctid IN ({chosen})").rowcount
            if self._whole and gone < -more:
                self._refuse_missing(-more - gone)
