"""A piece of changes into a table whose rows have a key, by a few statements for all of them together.

Rows that go are deleted, rows that stand are updated where they are, rows that come are inserted: in this order, so
that keys which change places, and keys that only Postgres takes for equal, meet nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from walrelay.changes.refusals import unnamed_rows, unsent_values
from walrelay.decode.base import Tally
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.collapse import NOWHERE, Flags, Latest, Places, latest
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.piece import Piece
from walrelay.destinations.postgres.places import place
from walrelay.destinations.postgres.stages import Stages
from walrelay.errors import MissingRowError
from walrelay.model.lsn import Lsn


@dataclass(frozen=True)
class Held:
    """The table that is written to."""

    copied: Lsn | None
    """Where its copy was taken; None when changes alone have made it."""
    is_unique: bool
    """Whether the key of these changes is the one that a unique index has."""


class KeyedPiece:
    """The statements for one piece."""

    def __init__(self, connection: Connection, stages: Stages, piece: Piece, held: Held, tally: Tally) -> None:
        self._connection = connection
        self._stages = stages
        self._piece = piece
        self._held = held
        self._tally = tally
        self._uncounted = Tally(tally.target, tally.special_values)
        self._table = place(piece.shape.name)
        self._columns = piece.shape.columns
        self._lacking = piece.lacking()
        self._loose = piece.has_loose_key

    def take(self) -> None:
        piece = self._piece
        if not len(piece):
            return
        if piece.has_old.any() and (unnamed := piece.unnamed()):
            raise unnamed_rows(piece.schema, unnamed)
        keys = piece.keys(self._uncounted.for_keys())
        found = latest(piece.ops, keys, self._lacking)
        gone = self._stage_gone(found.gone) if len(found.gone) else None
        puts = self._stage_puts(found, keys.new, keys.old) if len(found.puts) else None
        if gone is not None:
            if puts is not None and self._loose:
                self._run(f"DELETE FROM {puts} p USING {gone} g WHERE {self._same('p', 'c', 'g', 'c')} AND g.q > p.q")
            self._run(f"DELETE FROM {self._table} t USING {gone} g WHERE {self._same_row('g', 'c')}")
        if puts is not None:
            self._put(puts, int(np.count_nonzero(found.stands)), len(found.puts))

    # ------------------------------------------------------------------------------------------------------ staging

    def _stage_gone(self, places: Places) -> str:
        columns = [(f"c{i}", self._columns[i].type) for i in self._piece.key]
        arrays = [self._piece.old_text(i, places, self._uncounted) for i in self._piece.key]
        if self._loose:
            columns.append(("q", "bigint"))
            arrays.append(pa.array(places))
        return self._stages.fill(self._connection, "gone", tuple(columns), arrays)

    def _stage_puts(self, found: Latest, new_keys: Places, old_keys: Places) -> str:
        """With `s` where a row stands, and `l0`… for columns of which nothing is known here."""
        piece, unsent = self._piece, found.unsent
        values = {} if unsent is None else unsent.value_at
        columns = [(f"c{i}", one.type) for i, one in enumerate(self._columns)]
        arrays = [piece.new_text(i, values.get(i, found.puts), self._tally) for i in range(len(self._columns))]
        columns.append(("s", "boolean"))
        arrays.append(pa.array(found.stands))
        if self._loose:
            columns.append(("q", "bigint"))
            arrays.append(pa.array(found.puts))
        if unsent is None:
            return self._stages.fill(self._connection, "put", tuple(columns), arrays)
        lacks = {i: at == NOWHERE for i, at in values.items()}
        any_lacks = np.logical_or.reduce(list(lacks.values()))
        early = self._early(found.puts)
        self._refuse_unsent(lacks, (unsent.origin == NOWHERE) & ~early)
        origin = np.where(unsent.origin == NOWHERE, found.puts, unsent.origin)
        # One that came within, of which a copy knows more: what stands under its own key.
        origin_keys = np.where(unsent.origin == NOWHERE, new_keys[found.puts], old_keys[origin])
        moved = any_lacks & ((origin_keys != new_keys[found.puts]) | (unsent.origin == NOWHERE))
        for i, flags in lacks.items():
            columns.append((f"l{i}", "boolean"))
            arrays.append(pa.array(flags))
        for i in piece.key:
            columns.append((f"o{i}", self._columns[i].type))
            arrays.append(self._origins(i, origin, unsent.origin == NOWHERE))
        columns += [("moved", "boolean"), ("early", "boolean"), ("found", "boolean")]
        arrays += [pa.array(moved), pa.array(early), pa.array(np.zeros(len(moved), bool))]
        name = self._stages.fill(self._connection, "partial", tuple(columns), arrays)
        if moved.any():
            self._fetch_left_behind(name, sorted(lacks))
        return name

    def _origins(self, i: int, origin: Places, came: Flags) -> pa.Array:
        """The key under which the destination has the row."""
        before = self._piece.origin_text(i, np.where(came, 0, origin), self._uncounted)
        own = self._piece.new_text(i, origin, self._uncounted)
        both = pa.chunked_array([before, own.cast(before.type)]).combine_chunks()
        at = np.arange(len(origin))
        return both.take(pa.array(np.where(came, at + len(origin), at)))

    def _early(self, puts: Places) -> Flags:
        """What the copy was taken after: a row that it does not have is taken away by a later change."""
        copied = self._held.copied
        early: Flags = self._piece.lsns[puts] <= int(copied) if copied is not None else np.zeros(len(puts), bool)
        return early

    def _refuse_unsent(self, lacks: dict[int, Flags], came: Flags) -> None:
        """A value that was not sent, and is nowhere else, is not NULL (SEMANTICS 14)."""
        names = [self._columns[i].name for i, flags in lacks.items() if self._piece.column(i) and (flags & came).any()]
        if names:
            raise unsent_values(self._piece.schema, names)

    def _fetch_left_behind(self, puts: str, lacking: list[int]) -> None:
        """Values that a row had under another key, before that is deleted."""
        fetched = [
            f"c{i} = CASE WHEN p.l{i} THEN t.{quoted(self._columns[i].name)} ELSE p.c{i} END, l{i} = false"
            for i in lacking
        ]
        same = self._same_row("p", "o")
        self._run(
            f"UPDATE {puts} p SET found = true, {', '.join(fetched)} FROM {self._table} t WHERE p.moved AND {same}"
        )
        if self._held.copied is None:
            nothing = ", ".join(f"l{i} = false" for i in lacking)
            self._run(f"UPDATE {puts} SET found = true, {nothing} WHERE moved AND NOT found")
            return
        ((lost,),) = rows(self._connection, f"SELECT count(*) FROM {puts} WHERE moved AND NOT found AND NOT early")
        self._refuse_lost(lost)
        self._run(f"DELETE FROM {puts} WHERE moved AND NOT found")

    def _refuse_lost(self, lost: int) -> None:
        if lost:
            raise MissingRowError(
                f"{lost} rows that changes of {self._piece.schema.name} leave in part unchanged are not there"
            )

    # ------------------------------------------------------------------------------------------------------ putting

    def _put(self, puts: str, standing: int, count: int) -> None:
        if self._loose:
            self._run(f"DELETE FROM {puts} a USING {puts} b WHERE {self._same('a', 'c', 'b', 'c')} AND a.q < b.q")
        names = ", ".join(quoted(one.name) for one in self._columns)
        values = ", ".join(f"p.c{i}" for i in range(len(self._columns)))
        if not self._held.is_unique:
            self._put_apart(puts, names, values)
            return
        if standing:
            self._update(puts, names, values, standing)
        if standing < count:
            keys = ", ".join(quoted(self._columns[i].name) for i in self._piece.key)
            replaced = ", ".join(f"{quoted(one.name)} = excluded.{quoted(one.name)}" for one in self._columns)
            self._run(
                f"INSERT INTO {self._table} ({names}) SELECT {values} FROM {puts} p WHERE NOT p.s"
                f" ON CONFLICT ({keys}) DO UPDATE SET {replaced}"
            )

    def _update(self, puts: str, names: str, values: str, standing: int) -> None:
        """Rows that stand; one that is not there after all came before the copy, or there was none."""
        same = self._same_row("p", "c")
        done = self._run(f"UPDATE {self._table} t SET {self._assignments()} FROM {puts} p WHERE p.s AND {same}")
        if done >= standing:
            return
        missing = f"p.s AND NOT EXISTS (SELECT FROM {self._table} t WHERE {same})"
        if self._lacking and self._held.copied is not None:
            lacks = " OR ".join(f"p.l{i}" for i in self._lacking)
            question = f"SELECT count(*) FROM {puts} p WHERE ({lacks}) AND NOT p.early AND {missing}"
            self._refuse_lost(rows(self._connection, question)[0][0])
            missing = f"NOT ({lacks}) AND {missing}"
        self._run(f"INSERT INTO {self._table} ({names}) SELECT {values} FROM {puts} p WHERE {missing}")

    def _assignments(self) -> str:
        found = []
        for i, one in enumerate(self._columns):
            name = quoted(one.name)
            found.append(
                f"{name} = CASE WHEN p.l{i} THEN t.{name} ELSE p.c{i} END" if i in self._lacking else f"{name} = p.c{i}"
            )
        return ", ".join(found)

    def _put_apart(self, puts: str, names: str, values: str) -> None:
        """Without a unique index on these columns: by a delete and an insert."""
        same = self._same_row("p", "c")
        if self._lacking:
            found = [
                f"c{i} = CASE WHEN p.l{i} THEN t.{quoted(self._columns[i].name)} ELSE p.c{i} END, l{i} = false"
                for i in self._lacking
            ]
            self._run(f"UPDATE {puts} p SET {', '.join(found)} FROM {self._table} t WHERE p.s AND {same}")
            if self._held.copied is not None:
                lacks = " OR ".join(f"l{i}" for i in self._lacking)
                self._refuse_lost(
                    rows(self._connection, f"SELECT count(*) FROM {puts} WHERE ({lacks}) AND NOT early")[0][0]
                )
                self._run(f"DELETE FROM {puts} WHERE {lacks}")
        self._run(f"DELETE FROM {self._table} t USING {puts} p WHERE {same}")
        self._run(f"INSERT INTO {self._table} ({names}) SELECT {values} FROM {puts} p")

    def _same_row(self, keys: str, prefix: str) -> str:
        return " AND ".join(f"t.{quoted(self._columns[i].name)} = {keys}.{prefix}{i}" for i in self._piece.key)

    def _same(self, one: str, one_prefix: str, other: str, other_prefix: str) -> str:
        return " AND ".join(f"{one}.{one_prefix}{i} = {other}.{other_prefix}{i}" for i in self._piece.key)

    def _run(self, statement: str) -> int:
        return run(self._connection, statement).rowcount
