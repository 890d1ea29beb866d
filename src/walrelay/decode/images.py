"""The rows of changes, before and after: their fields by column, and columns as structs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.errors import BadBytesError
from walrelay.model.names import TableName
from walrelay.wire.copy_binary import Rows
from walrelay.wire.kernel import OK
from walrelay.wire.pgoutput import ANY, Events, gather_fields


def gathered(
    expected: npt.NDArray[np.uint8],
    table: TableName,
    events: Events,
    firsts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int32],
    present: npt.NDArray[np.bool_] | None = None,
) -> tuple[Rows, npt.NDArray[np.uint8] | None]:
    """The fields of rows by column, and (columns × rows) which of them are unchanged, if any."""
    width, count = len(expected), len(firsts)
    starts = np.empty((width, count), dtype=np.int32)
    lengths = np.empty((width, count), dtype=np.int32)
    marks = np.empty((width, count), dtype=np.uint8)
    bad, unchanged = gather_fields(
        firsts, counts, events.starts, events.lengths, events.formats, expected, starts, lengths, marks
    )
    if bad == OK and width and present is not None and (short := present & (counts == 0)).any():
        bad = int(np.argmax(short))  # a row that is there has fields; only one that is not may be all NULL
    if bad != OK:
        raise BadBytesError(
            f"a row of {table} that does not fit the table's description",
            position=events.base + int(events.starts[firsts[bad]] if len(events.starts) > firsts[bad] else 0),
        )
    return Rows(events.buf, starts, lengths, events.base), (marks if unchanged else None)


def otherwise_sent(
    expected: npt.NDArray[np.uint8],
    events: Events,
    firsts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int32],
) -> npt.NDArray[np.bool_]:
    """Which rows have a field that came as text where bytes are expected, or the other way round."""
    width = len(expected)
    found = np.zeros(len(firsts), dtype=np.bool_)
    whole = np.flatnonzero((counts == width) & (counts > 0))
    if len(whole):
        fields = firsts[whole][:, None] + np.arange(width)
        wrong = (events.lengths[fields] >= 0) & (events.formats[fields] != expected) & (expected != ANY)
        found[whole] = wrong.any(axis=1)
    return found


def struct_of(columns: list[pa.Array], fields: list[pa.Field], count: int, mask: pa.Array | None) -> pa.StructArray:
    """A struct column; a table without columns still has rows."""
    if columns:
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    valid = None if mask is None else pa.array([not hidden for hidden in mask.to_pylist()]).buffers()[1]
    return pa.Array.from_buffers(pa.struct(fields), count, [valid])


def names_of(marks: npt.NDArray[np.uint8], names: pa.Array) -> pa.ListArray:
    """For each row the names of its marked columns; NULL for a row without."""
    per_row = marks.sum(axis=0, dtype=np.int32)
    offsets = np.zeros(len(per_row) + 1, dtype=np.int32)
    np.cumsum(per_row, out=offsets[1:])
    _, columns = np.nonzero(marks.T)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(columns)), mask=pa.array(per_row == 0))
