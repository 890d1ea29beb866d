"""Changes as Arrow where rows have no fields, or not those that they should have."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from walrelay.decode.changes import ChangeDecoder, TableChanges
from walrelay.errors import BadBytesError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.wire.pgoutput import MessageWalker

TXNS = np.array([[100], [110], [0], [7]], dtype=np.int64)
INT4 = Column("n", PgType(23, "int4"))
GONE = Column("gone", PgType(99, "type 99", schema=""))


def frame(message: bytes) -> bytes:
    return b"d" + struct.pack(">i", 29 + len(message)) + b"w" + bytes(24) + message


def decoded(columns: tuple[Column, ...], *messages: bytes) -> list[dict[str, Any]]:
    """The changes of one transaction on relation 1."""
    version = SchemaVersion(TableSchema(1, TableName("public", "t"), columns), 1, Lsn(0))
    relation = b"R" + struct.pack(">I", 1) + b"public\0t\0f" + struct.pack(">H", len(columns))
    for column in columns:
        relation += b"\0" + column.name.encode() + b"\0" + struct.pack(">Ii", column.type.oid, -1)
    begin = frame(b"B" + struct.pack(">qqI", 100, 0, 7))
    data = np.frombuffer(bytearray(begin + b"".join(map(frame, (relation, *messages)))), np.uint8)
    decoder = ChangeDecoder(lambda relation, lsn, xid: version)
    found: list[dict[str, Any]] = []
    for events in MessageWalker().walk_whole(data, 0, len(data), 0):
        for one in decoder.decode(events, TXNS):
            assert isinstance(one, TableChanges)
            found += one.batch.to_pylist()
    return found


def field(kind: bytes, value: bytes) -> bytes:
    return kind + struct.pack(">i", len(value)) + value


ID = struct.pack(">I", 1)


def test_the_old_row_of_a_table_without_columns_is_there() -> None:
    deleted, updated = decoded((), b"D" + ID + b"O\0\0", b"U" + ID + b"O\0\0N\0\0")
    assert (deleted["row"], deleted["old"], deleted["old_kind"]) == (None, {}, "row")
    assert (updated["row"], updated["old"], updated["old_kind"]) == ({}, {}, "row")


@pytest.mark.parametrize(
    "message",
    [
        b"I" + ID + b"N\0\0",
        b"U" + ID + b"N\0\0",
        b"D" + ID + b"K\0\0",
        b"D" + ID + b"O\0\0",
        b"U" + ID + b"O\0\0N\0\1n",
        b"I" + ID + b"N\0\2nn",
    ],
)
def test_a_row_that_lacks_fields_of_its_table_is_refused_and_not_taken_for_null(message: bytes) -> None:
    with pytest.raises(BadBytesError, match="does not fit the table's description"):
        decoded((INT4,), b"I" + ID + b"N\0\1n", message)


@pytest.mark.parametrize("kind", [b"b", b"t"])
def test_values_of_a_type_that_was_dropped_are_bytes_however_they_were_sent(kind: bytes) -> None:
    [change] = decoded((INT4, GONE), b"I" + ID + b"N\0\2" + field(b"b", b"\0\0\0\5") + field(kind, b"some"))
    assert change["row"] == {"n": 5, "gone": b"some"}
