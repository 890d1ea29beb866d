"""Rows found by a walk → one Arrow record batch, a column at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from walrelay.decode.base import Decoder, Fields, Tally, Target
from walrelay.decode.registry import decoder_for
from walrelay.decode.text import text
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.schema import Column, TableSchema
from walrelay.wire.copy_binary import Rows

Unreadable = BadBytesError | SpecialValueError
"""What a value raises that cannot be taken as it is."""


def column_decoder(column: Column, target: Target) -> Decoder:
    return text() if column.as_text else decoder_for(column.type, target)


class TableDecoder:
    """Decodes a table's rows for one target. Not for sharing between threads: it counts special values."""

    def __init__(self, schema: TableSchema, tally: Tally, *, keys: Collection[str] = ()) -> None:
        """`keys` names the columns whose values no policy may treat."""
        self._names = [column.name for column in schema.columns]
        self._decoders = [column_decoder(column, tally.target) for column in schema.columns]
        self._table = str(schema.name)
        self.tally = tally
        of_keys = tally.for_keys()
        self._tallies = [of_keys if name in keys else tally for name in self._names]
        self.arrow_schema = arrow_schema(schema, tally.target)

    def decode(self, rows: Rows) -> pa.RecordBatch:
        """The rows as Arrow. Errors name table, column and the place in the stream, never a value."""
        if not self._decoders:
            return bare_rows(len(rows))
        columns = []
        for index, decoder in enumerate(self._decoders):
            fields = Fields(rows.buf, rows.starts[index], rows.lengths[index])
            try:
                columns.append(decoder.decode(fields, self._tallies[index]))
            except (BadBytesError, SpecialValueError) as error:
                raise self._named(error, index, rows.base) from error
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def bad_rows(self, rows: Rows) -> dict[int, Unreadable]:
        """The rows that `decode` refuses, each with its first error: found by halving, a column at a time."""
        found: dict[int, Unreadable] = {}
        for index, decoder in enumerate(self._decoders):
            fields = Fields(rows.buf, rows.starts[index], rows.lengths[index])
            for row, error in _bad_fields(decoder, fields, self._tallies[index]):
                found.setdefault(row, self._named(error, index, rows.base))
        return found

    def _named(self, error: Unreadable, index: int, base: int) -> Unreadable:
        name = self._names[index]
        where = {"table": self._table, "column": name}
        if isinstance(error, BadBytesError):
            reason, position = f"{error.reason}, in column {name} of {self._table}", base + error.position
            context = {**error.context, **where, "position": position, "reason": reason}
            return BadBytesError(reason, position=position, context=context)
        message = f"{error.message}, in column {name} of {self._table}"
        return type(error)(message, hint=error.hint, context={**error.context, **where})


def _bad_fields(decoder: Decoder, fields: Fields, tally: Tally) -> Iterator[tuple[int, Unreadable]]:
    """The fields that cannot be decoded, in order."""
    left = [(0, len(fields))]
    while left:
        low, high = left.pop()
        try:
            decoder.decode(Fields(fields.buf, fields.starts[low:high], fields.lengths[low:high]), tally)
        except (BadBytesError, SpecialValueError) as error:
            if high - low == 1:
                yield low, error
            else:
                middle = (low + high) // 2
                left += [(middle, high), (low, middle)]


def rows_at(rows: Rows, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Rows:
    """Some of the rows."""
    return Rows(rows.buf, rows.starts[:, chosen], rows.lengths[:, chosen], rows.base)


def bare_rows(count: int) -> pa.RecordBatch:
    """So many rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def arrow_schema(schema: TableSchema, target: Target) -> pa.Schema:
    """All columns nullable: a NOT NULL of today may be dropped tomorrow, and readers should not care."""
    return pa.schema([pa.field(c.name, column_decoder(c, target).arrow_type) for c in schema.columns])
