"""A table's rows as Arrow, shaped: for the copy's tasks, and for the images of changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from walrelay.decode.base import ARROW, TEXT, Tally
from walrelay.decode.retarget import retarget
from walrelay.decode.table import TableDecoder, arrow_schema, column_decoder
from walrelay.errors import WalrelayError
from walrelay.model.lsn import Lsn
from walrelay.model.schema import Column, TableSchema
from walrelay.shaping.plan import DELETED, LSN, OPERATION, ORDINAL, Plan, ShapedColumn
from walrelay.shaping.values import hidden
from walrelay.wire.copy_binary import Rows


class ShapingDecoder:
    """Decodes the rows of a copy, of which `plan.read` says the columns, into what the destination gets: what is to be
    hidden is never in a batch. Not for sharing between threads, as `TableDecoder`."""

    def __init__(
        self, plan: Plan, tally: Tally, *, keys: Collection[str] = (), snapshot_lsn: Lsn | None = None
    ) -> None:
        self._plan = plan
        self._target = tally.target
        self._snapshot_lsn = snapshot_lsn
        self._places = {column.name: place for place, column in enumerate(plan.read.columns)}
        as_text = Tally(TEXT, tally.special_values, tally.counts)
        self._decoders = {
            one.source.name: self._decoder(plan.source, one, as_text if one.needs_text else tally, keys)
            for one in plan.columns
            if one.needs_values
        }
        self.arrow_schema = arrow_schema(plan.shaped, tally.target)

    @staticmethod
    def _decoder(schema: TableSchema, one: ShapedColumn, tally: Tally, keys: Collection[str]) -> TableDecoder:
        alone = TableSchema(schema.id, schema.name, (one.source,))
        return TableDecoder(alone, tally, keys=keys)

    def decode(self, rows: Rows) -> pa.RecordBatch:
        columns = [self._column(rows, one) for one in self._plan.columns]
        columns += [self._made(column, len(rows)) for column in self._plan.made]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), len(rows), [None]))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _column(self, rows: Rows, one: ShapedColumn) -> pa.Array:
        kind = column_decoder(one.column, self._target).arrow_type
        if not one.needs_values:
            return pa.nulls(len(rows), kind)
        place = self._places[one.source.name]
        own = Rows(rows.buf, rows.starts[place : place + 1], rows.lengths[place : place + 1], rows.base)
        values = self._decoders[one.source.name].decode(own).column(0)
        return values if one.hidden is None else hidden(values, one.hidden, kind)

    def _made(self, column: Column, count: int) -> pa.Array:
        lsn = None if self._snapshot_lsn is None else int(self._snapshot_lsn)
        given = {DELETED: False, OPERATION: "copy", LSN: lsn, ORDINAL: 0}
        kind = column_decoder(column, self._target).arrow_type
        return pa.repeat(pa.scalar(given.get(column), kind), count)


def shaped_image(plan: Plan, image: pa.StructArray, made: Mapping[str, pa.Array] | None = None) -> pa.StructArray:
    """The row before or after a change; one that is not there stays so. `made` are values for columns of our own, which
    else are NULL."""
    parts = dict(zip((column.name for column in plan.source.columns), image.flatten(), strict=True))
    count = len(image)
    columns = [_hidden(plan, one, parts[one.source.name]) for one in plan.columns]
    for column in plan.made:
        kind = column_decoder(column, ARROW).arrow_type
        given = (made or {}).get(column.name)
        columns.append(pa.nulls(count, kind) if given is None else given.cast(kind))
    fields = list(arrow_schema(plan.shaped, ARROW))
    absent = image.is_null()
    if not fields:
        return pa.Array.from_buffers(pa.struct([]), count, [image.is_valid().buffers()[1]])
    return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)


def _hidden(plan: Plan, one: ShapedColumn, values: pa.Array) -> pa.Array:
    if one.hidden is None:
        return values
    if one.needs_text and not one.source.as_text:
        try:
            values = retarget(values, one.source.type, Tally(TEXT, "null"))
        except WalrelayError as error:
            error.context.setdefault("table_id", plan.source.id)
            raise
    return hidden(values, one.hidden, column_decoder(one.column, ARROW).arrow_type)
