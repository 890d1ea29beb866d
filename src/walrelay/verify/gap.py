"""What the change log holds between a snapshot of the source and the position of a destination.

Both ways: transactions that the snapshot does not see and the destination has, and those that it sees and the
destination does not have yet. Of the first the log tells what became of each row, so that the source's rows at the
snapshot and these changes are exactly what the destination must hold. Keys of the second are left for later.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from psycopg import sql

from walrelay.decode.base import Tally
from walrelay.decode.retarget import retarget_struct
from walrelay.destinations.duckdb.dialect import DUCKDB, column_type, projection
from walrelay.destinations.duckdb.file import duckdb_module
from walrelay.destinations.row_text import DuckDBSide
from walrelay.log.reader import LogReader, TableBatch
from walrelay.log.xids import catch_up_start, read_samples
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, TableSchema
from walrelay.model.visibility import VisibleTransactions

SIDE = DuckDBSide()


@dataclass
class Gap:
    """What has to be taken into account when a snapshot and a destination are compared. Rows and keys are hashes."""

    told: set[int] = field(default_factory=set)
    """Keys whose rows the log tells, instead of the source."""
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Key and row: how many more of these the destination must have than the source, without the keys `told`."""
    pending: set[int] = field(default_factory=set)
    """Keys whose rows nobody can tell now."""
    trouble: str | None = None
    """Why nothing of the table can be told now."""
    behind: int = 0
    """How many changes the snapshot sees and the destination does not have."""


@dataclass(frozen=True, slots=True)
class _Event:
    op: str
    is_applied: bool
    """Whether the destination has it, and the snapshot does not; else it is the other way round."""
    new: tuple[int, int] | None
    old: tuple[int, int | None] | None
    """Without the row's hash where only its key is known."""
    is_partial: bool


def read_gap(log: LogReader, schema: TableSchema, key: tuple[Column, ...], visible: str, applied: Lsn, end: Lsn) -> Gap:
    """The gap between the snapshot `visible` and the position `applied`, from the log up to `end`. `key` is empty where
    rows may be equal."""
    start = min(catch_up_start(read_samples(log.storage), log.start(), visible), applied)
    gap = Gap()
    snapshot = VisibleTransactions.parse(visible)
    span = _span(log, schema.id, start, end, snapshot, applied) if start < end else None
    if span is None:
        return gap
    fold = _Fold(gap, bool(key))
    chosen = (found for one in log.batches(*span, {schema.id}) if (found := _one_sided(one, snapshot, applied)))
    for _, run in itertools.groupby(chosen, key=lambda one: one.version.version):
        together = list(run)
        places = _places(schema, together[0].version.schema)
        if places is None:
            gap.trouble = "it was altered just now"
            return gap
        batch = pa.Table.from_batches([one.batch for one in together]).combine_chunks().to_batches()[0]
        for event in _events(TableBatch(together[0].version, batch), applied, schema, key or schema.columns, places):
            fold.take(event)
    fold.finish()
    return gap


def _span(
    log: LogReader, table: TableId, start: Lsn, end: Lsn, snapshot: VisibleTransactions, applied: Lsn
) -> tuple[Lsn, Lsn] | None:
    """Between which positions the changes are that matter: most of what has to be looked at is long on both sides."""
    ends: list[int] = []
    for entry in log.entries(start, end):
        for file in entry.files:
            if file.table != table:
                continue
            try:
                with log.storage.open(file.path) as handle:
                    found = pq.read_table(handle, columns=["xid", "end_lsn"])
            except FileNotFoundError:  # merged meanwhile
                return start, end
            found = found.filter(pc.and_(pc.greater(found["end_lsn"], int(start)), _mask(found, snapshot, applied)))
            if found.num_rows:
                ends += pc.min_max(found["end_lsn"]).as_py().values()
    return (Lsn(min(ends) - 1), Lsn(max(ends))) if ends else None


def _mask(
    changes: pa.Table | pa.RecordBatch, snapshot: VisibleTransactions, applied: Lsn
) -> pa.ChunkedArray | pa.Array:
    """Which are on one side only: seen and not applied, or applied and not seen."""
    xids = changes.column("xid")
    seen = pa.array([xid for xid in pc.unique(xids).to_pylist() if snapshot.sees(xid)], pa.int64())
    return pc.xor(pc.is_in(xids, value_set=seen), pc.less_equal(changes.column("end_lsn"), int(applied)))


def _one_sided(one: TableBatch, snapshot: VisibleTransactions, applied: Lsn) -> TableBatch | None:
    """The changes that are on one side only."""
    found = one.batch.filter(_mask(one.batch, snapshot, applied))
    return TableBatch(one.version, found) if found.num_rows else None


def _places(schema: TableSchema, logged: TableSchema) -> list[int] | None:
    """Where the log has each of the table's columns; None when it is not the same table."""
    by_number = {column.attnum: i for i, column in enumerate(logged.columns) if column.attnum}
    by_name = {column.name: i for i, column in enumerate(logged.columns)}
    found = []
    for column in schema.columns:
        place = by_number.get(column.attnum, by_name.get(column.name))
        if place is None or not _same_type(column, logged.columns[place]):
            return None
        found.append(place)
    return found


def _same_type(one: Column, other: Column) -> bool:
    return source_type(one.type) == source_type(other.type) and column_type(one) == column_type(other)


# ------------------------------------------------------------------------------------------------------------- hashing


def _events(
    one: TableBatch, applied: Lsn, schema: TableSchema, key: tuple[Column, ...], places: list[int]
) -> Iterator[_Event]:
    batch, logged = one.batch, one.version.schema
    is_applied = pc.less_equal(batch.column("end_lsn"), int(applied)).to_pylist()
    left_out = [frozenset(names or ()) for names in batch.column("unchanged").to_pylist()]
    hashes = _hashes(batch, logged, schema, key, places)
    ops, kinds = batch.column("op").to_pylist(), batch.column("old_kind").to_pylist()
    for place, (new_key, new_row, old_key, old_row, is_special) in enumerate(hashes):
        op, kind = ops[place], kinds[place]
        old = None if kind is None else (old_key, old_row if kind == "row" else None)
        new = (new_key, new_row) if op in ("insert", "update") else None
        # What was left out is taken from the old row, where that is whole.
        is_partial = is_special or (bool(left_out[place]) and kind != "row")
        yield _Event(op, is_applied[place], new, old, is_partial)


def _hashes(
    batch: pa.RecordBatch, logged: TableSchema, schema: TableSchema, key: tuple[Column, ...], places: list[int]
) -> list[Any]:
    """Of each change: key and row, new and old; and whether policy has treated a value in it."""
    count = batch.num_rows
    if not schema.columns:
        return [(0, 0, 0, 0, False)] * count
    tally = Tally(DUCKDB, "null")
    news, olds = (retarget_struct(batch.column(name), logged, tally).flatten() for name in ("row", "old"))
    table = {f"n{i}": news[place] for i, place in enumerate(places)}
    table |= {f"o{i}": olds[place] for i, place in enumerate(places)}
    table["unchanged"] = batch.column("unchanged")
    table["place"] = pa.array(range(count), pa.int64())
    names = [logged.columns[place].name for place in places]
    sides = [_relation(schema.columns, names, "new"), _relation(schema.columns, names, "old")]
    by_name = {column.name: i for i, column in enumerate(schema.columns)}
    mine = [replace(column, name=f"c{i}") for i, column in enumerate(schema.columns)]
    keyed = [mine[by_name[column.name]] for column in key]
    question = sql.SQL("SELECT place, {} AS k, {} AS r FROM ({})")
    connection = duckdb_module().connect()
    try:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        connection.register("changes", pa.table(table))
        found = []
        for side in sides:
            asked = question.format(SIDE.row_hash(keyed), SIDE.row_hash(mine), sql.SQL(side))
            rows = connection.execute(f"{asked.as_string(None)} ORDER BY place").fetchall()
            found.append([(k, r) for _, k, r in rows])
    finally:
        connection.close()
    # Which of the rows was treated is not told: all of them are looked at again.
    treated = bool(tally.counts)
    return [(*new, *old, treated) for new, old in zip(*found, strict=True)]


def _relation(columns: tuple[Column, ...], names: list[str], side: str) -> str:
    """SQL of the changes' rows in the destination's types, as c0…"""
    made = []
    for i, (column, name) in enumerate(zip(columns, names, strict=True)):
        old, new = projection(column, f"o{i}"), projection(column, f"n{i}")
        if side == "old":
            made.append(f"{old} AS c{i}")
        else:
            literal = "'" + name.replace("'", "''") + "'"
            left_out = f"coalesce(list_contains(unchanged, {literal}), false)"
            made.append(f"CASE WHEN {left_out} THEN {old} ELSE {new} END AS c{i}")
    return f"SELECT place, {', '.join(made)} FROM changes"


# ------------------------------------------------------------------------------------------------------------- folding


class _Fold:
    """Takes changes in their order."""

    def __init__(self, gap: Gap, has_key: bool) -> None:
        self._gap = gap
        self._has_key = has_key
        self._last: dict[int, int | None] = {}
        """The row that stands under a key in the end; None for none."""

    def take(self, event: _Event) -> None:
        gap = self._gap
        gap.behind += not event.is_applied
        if event.op == "truncate":
            gap.trouble = "it was truncated just now"
        elif self._has_key:
            self._take_keyed(event)
        else:
            self._take_loose(event)

    def _take_keyed(self, event: _Event) -> None:
        gap = self._gap
        keys = [pair[0] for pair in (event.old, event.new) if pair is not None]
        if not event.is_applied:
            gap.pending.update(keys)
            return
        for key in keys:
            self._last[key] = None
        if event.new is not None:
            key, row = event.new
            self._last[key] = row
            if event.is_partial:
                gap.pending.add(key)
            else:
                # The last change of a key tells all of it, whatever came before.
                gap.pending.discard(key)

    def _take_loose(self, event: _Event) -> None:
        gap, sign = self._gap, 1 if event.is_applied else -1
        if event.is_partial or (event.op in ("update", "delete") and (event.old is None or event.old[1] is None)):
            gap.trouble = "the log does not say which of its rows were changed"
            return
        if event.new is not None:
            gap.rows[event.new] += sign
        if event.old is not None and event.old[1] is not None:
            gap.rows[event.old[0], event.old[1]] -= sign

    def finish(self) -> None:
        gap = self._gap
        if not self._has_key:
            return
        gap.told = self._last.keys() - gap.pending
        for key, row in self._last.items():
            if key in gap.told and row is not None:
                gap.rows[key, row] += 1
