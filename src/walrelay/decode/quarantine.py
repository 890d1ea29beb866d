"""Changes that could not be decoded, as the log keeps them: where they stand, why, and the bytes that came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.decode.base import TEXT, Tally
from walrelay.decode.json_text import json_objects
from walrelay.decode.table import TableDecoder, Unreadable, rows_at
from walrelay.errors import BadBytesError
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.wire.copy_binary import Rows
from walrelay.wire.pgoutput import Events
from walrelay.wire.replication import COMMIT_LSN, COMMIT_TIME, END_LSN, XID

QUARANTINE_SCHEMA = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("end_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("xid", pa.int64()),
        ("commit_time", pa.timestamp("us", "UTC")),
        ("table", pa.int64()),
        ("name", pa.string()),
        ("schema_version", pa.int32()),
        ("op", pa.string()),
        ("code", pa.string()),
        ("reason", pa.string()),
        ("key", pa.string()),
        ("message", pa.binary()),
    ]
)
"""`code` and `reason` are the error's, without values; `key` is a JSON object, NULL where it cannot be read; `message`
is pgoutput's message."""
_OPS = {ord("I"): "insert", ord("U"): "update", ord("D"): "delete"}


@dataclass(frozen=True, slots=True)
class QuarantinedChanges:
    """Some changes of one table that could not be decoded under `version`, in order; columns as `QUARANTINE_SCHEMA`."""

    version: SchemaVersion
    batch: pa.RecordBatch


class KeyReader:
    """Reads the keys of a table's rows, as text."""

    def __init__(self, schema: TableSchema) -> None:
        self._places = [i for i, column in enumerate(schema.columns) if column.name in schema.key_columns]
        columns = tuple(schema.columns[i] for i in self._places)
        names = [column.name for column in columns]
        self._decoder = TableDecoder(replace(schema, columns=columns), Tally(TEXT), keys=names)

    def texts(self, rows: Rows) -> list[str | None]:
        """The key of each row as a JSON object; None where the table has none, or it cannot be decoded either."""
        found: list[str | None] = [None] * len(rows)
        if not self._places:
            return found
        keys = Rows(rows.buf, rows.starts[self._places], rows.lengths[self._places], rows.base)
        good = np.setdiff1d(np.arange(len(rows)), list(self._decoder.bad_rows(keys)))
        if len(good):
            batch = self._decoder.decode(rows_at(keys, good))
            texts = json_objects(pa.StructArray.from_arrays(batch.columns, batch.schema.names)).to_pylist()
            for row, text in zip(good.tolist(), texts, strict=True):
                found[row] = text
        return found


def quarantined(
    version: SchemaVersion,
    events: Events,
    chosen: npt.NDArray[np.int64],
    txns: npt.NDArray[np.int64],
    errors: Mapping[int, Unreadable],
    keys: list[str | None],
) -> QuarantinedChanges:
    """The changes `chosen` with their errors (by place in `chosen`) and keys."""
    of = txns[:, events.txns[chosen]]
    count, schema = len(chosen), version.schema
    why = [errors[place] for place in range(count)]
    arrays = [
        pa.array(of[COMMIT_LSN]),
        pa.array(of[END_LSN]),
        pa.array(events.ordinals[chosen]),
        pa.array(of[XID]),
        pa.array(of[COMMIT_TIME]).view(pa.timestamp("us", "UTC")),
        pa.repeat(pa.scalar(schema.id, pa.int64()), count),
        pa.repeat(str(schema.name), count),
        pa.repeat(pa.scalar(version.version, pa.int32()), count),
        pa.array([_OPS[kind] for kind in events.kinds[chosen].tolist()]),
        pa.array([error.code for error in why]),
        pa.array([error.reason if isinstance(error, BadBytesError) else error.message for error in why]),
        pa.array(keys, pa.string()),
        pa.array([events.message(event) for event in chosen.tolist()], pa.binary()),
    ]
    return QuarantinedChanges(version, pa.RecordBatch.from_arrays(arrays, schema=QUARANTINE_SCHEMA))
