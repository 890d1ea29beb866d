"""The quick lane: few changes are collapsed here, by Arrow, column by column, in milliseconds. What it does not do it
says: then Spark does (`frame_lane.py`). What both must come to says `changes/collapse.py`."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.refusals import unnamed_rows
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import Tally
from walrelay.decode.retarget import retarget_struct
from walrelay.destinations.clickhouse.collapsed import Collapsed
from walrelay.destinations.clickhouse.dialect import CLICKHOUSE
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special, SpecialValues

QUICK_ROWS = 50_000
"""So many changes of a table are collapsed here; for more Spark, which needs a second to begin, is sooner done."""


def quickly_collapsed(part: TableChanges, special_values: SpecialValues, most: int = QUICK_ROWS) -> Collapsed | None:
    """None where it takes more: many changes, several shapes, values that were left out, keys of nested types."""
    if sum(file.rows for _, file in part.files) > most or len(part.versions) > 1:
        return None
    batches = [one.batch for one in part.arrow()]
    if not batches:
        return Collapsed()
    table = pa.Table.from_batches(batches).sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")])
    table = table.combine_chunks()
    if pc.any(pc.greater(pc.list_value_length(table["unchanged"]), 0)).as_py():
        return None
    return _Quick(part.schema, table, special_values).collapsed()


class _Quick:
    """Changes in their order, under one schema."""

    def __init__(self, schema: TableSchema, table: pa.Table, special_values: SpecialValues) -> None:
        self._schema = schema
        self._changes = table.num_rows
        names = [column.name for column in schema.columns]
        self._key = [names.index(name) for name in sorted(schema.key_columns, key=names.index)]
        truncates = np.flatnonzero(_numpy(pc.equal(table["op"], "truncate")))
        self._truncated = len(truncates) > 0
        self._table = table.slice(truncates[-1] + 1) if self._truncated else table
        self._treated: Counter[Special] = Counter()
        self._new = self._image("row", Tally(CLICKHOUSE, special_values, self._treated))
        # What a row held before was counted when it came.
        self._old = self._image("old", Tally(CLICKHOUSE, special_values, Counter()))

    def _image(self, side: str, tally: Tally) -> list[pa.Array]:
        chunks = self._table[side].combine_chunks()
        image = chunks if isinstance(chunks, pa.Array) else pa.concat_arrays(chunks.chunks)
        made = retarget_struct(image, self._schema, tally, keys=self._schema.key_columns)
        columns: list[pa.Array] = made.flatten() if self._schema.columns else []
        return columns

    def _op(self, *names: str) -> np.ndarray:
        return _numpy(pc.is_in(self._table["op"], pa.array(names)))

    def collapsed(self) -> Collapsed | None:
        if self._key and any(_is_odd(self._new[i].type) for i in self._key):
            return None
        named = _numpy(pc.is_valid(self._table["old_kind"]))
        goes = self._op("update", "delete")
        self._refuse_unnamed(named, goes)
        made = self._last(named) if self._key else self._moves(goes)
        return Collapsed(
            self._changes,
            self._truncated,
            takes_away=not self._key and bool(goes.any()),
            treated=self._treated,
            bytes=made.nbytes,
            batches=lambda: iter(made.to_batches()),
        )

    def _refuse_unnamed(self, named: np.ndarray, goes: np.ndarray) -> None:
        if self._key:
            missing = np.zeros(len(goes), bool)
            for i in self._key:
                missing |= _numpy(self._old[i].is_null())
            unnamed = goes & named & missing
        else:
            unnamed = goes & ~named
        if unnamed.any():
            raise unnamed_rows(self._schema, int(unnamed.sum()))

    def _place(self, rows: np.ndarray) -> dict[str, pa.Array]:
        chosen = pa.array(rows)
        return {
            "lsn": self._table["commit_lsn"].take(chosen).combine_chunks(),
            "ordinal": self._table["ordinal"].take(chosen).combine_chunks(),
        }

    def _last(self, named: np.ndarray) -> pa.Table:
        """A row that goes is at 2q and one that comes at 2q + 1, so that an update which changes the key first takes
        away, then puts."""
        moved = np.zeros(len(named), bool)
        for i in self._key:
            moved |= _numpy(pc.fill_null(pc.not_equal(self._new[i], self._old[i]), False))
        puts = np.flatnonzero(self._op("insert", "update"))
        gone = np.flatnonzero(self._op("delete") | (self._op("update") & named & moved))
        touches = pa.table(
            {
                **{
                    f"k{i}": pa.concat_arrays([self._new[i].take(pa.array(puts)), self._old[i].take(pa.array(gone))])
                    for i in self._key
                },
                "s": pa.array(np.concatenate([2 * puts + 1, 2 * gone])),
            }
        )
        last = touches.group_by([f"k{i}" for i in self._key]).aggregate([("s", "max")])
        s = np.sort(_numpy(last["s_max"]))
        is_put, rows = (s & 1).astype(bool), s >> 1
        from_put = pa.array(rows, mask=~is_put)
        chosen = pa.array(rows)
        made = {"is_put": pa.array(is_put), **self._place(rows)}
        for i in self._key:
            made[f"k{i}"] = pc.if_else(made["is_put"], self._new[i].take(chosen), self._old[i].take(chosen))
        made |= {f"n{i}": array.take(from_put) for i, array in enumerate(self._new)}
        return pa.table(made)

    def _moves(self, goes: np.ndarray) -> pa.Table:
        comes = np.flatnonzero(self._op("insert", "update"))
        left = np.flatnonzero(goes)
        signs = np.concatenate([np.ones(len(comes), np.int8), np.full(len(left), -1, np.int8)])
        rows = np.concatenate([comes, left])
        made = {"sign": pa.array(signs), **self._place(rows)}
        for i, (new, old) in enumerate(zip(self._new, self._old, strict=True)):
            made[f"n{i}"] = pa.concat_arrays([new.take(pa.array(comes)), old.take(pa.array(left))])
        return pa.table(made)


def _is_odd(type_: pa.DataType) -> bool:
    """Whether Arrow cannot tell such keys apart, or tells some apart that are one."""
    return bool(pa.types.is_nested(type_) or pa.types.is_floating(type_))


def _numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    found: np.ndarray = array.to_numpy(zero_copy_only=False)
    return found
