"""Changes found by a walk → Arrow record batches, one per table and schema version, as the log holds them.

The rows themselves go through the same decoder as the copy's; this file adds what makes them changes: position, kind,
old image, and which columns were not sent because their TOASTed value did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.decode.base import ARROW, Tally
from walrelay.decode.table import TableDecoder, arrow_schema
from walrelay.errors import BadBytesError
from walrelay.model.schema import Column, SchemaVersion, TableSchema
from walrelay.model.special import SpecialValues
from walrelay.wire.copy_binary import Rows
from walrelay.wire.kernel import OK
from walrelay.wire.pgoutput import (
    ANY,
    BINARY,
    DELETE,
    INSERT,
    KEY,
    MESSAGE,
    RELATION,
    TEXT,
    TRUNCATE,
    TYPE,
    UPDATE,
    Events,
    LogicalMessage,
    Relation,
    gather_fields,
    parse_message,
    parse_origin,
    parse_relation,
    parse_type,
)
from walrelay.wire.replication import COMMIT_LSN, COMMIT_TIME, END_LSN, XID

OPS = ("insert", "update", "delete", "truncate")
OLD_KINDS = ("key", "row")
_OP_CODE = np.zeros(256, dtype=np.int8)
_OP_CODE[[INSERT, UPDATE, DELETE, TRUNCATE]] = [0, 1, 2, 3]
_IS_CHANGE = np.zeros(256, dtype=bool)
_IS_CHANGE[[INSERT, UPDATE, DELETE, TRUNCATE]] = True
_WORD = pa.dictionary(pa.int8(), pa.string())
COMMIT_TIME_TYPE = pa.timestamp("us", "UTC")

Describe = Callable[[Relation, int], SchemaVersion]
"""Gives the schema version that a Relation message means, for a transaction with this commit LSN."""


def change_schema(schema: TableSchema) -> pa.Schema:
    """All columns of a change of this table."""
    row = pa.struct(list(arrow_schema(schema, ARROW)))
    return pa.schema(
        [
            ("commit_lsn", pa.int64()),
            ("end_lsn", pa.int64()),
            ("ordinal", pa.int64()),
            ("xid", pa.int64()),
            ("commit_time", COMMIT_TIME_TYPE),
            ("op", _WORD),
            ("schema_version", pa.int32()),
            ("row", row),
            ("old", row),
            ("old_kind", _WORD),
            ("unchanged", pa.list_(pa.string())),
        ]
    )


OPTIONAL = ("old", "old_kind", "unchanged")
"""Columns that are left out where no change has them."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Some changes of one table under one schema version, in order."""

    version: SchemaVersion
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A logical message, and where it stands."""

    commit_lsn: int
    end_lsn: int
    ordinal: int
    xid: int
    commit_time: int
    message: LogicalMessage


class _Reader:
    """How the changes of one relation are read."""

    def __init__(self, version: SchemaVersion, special_values: SpecialValues) -> None:
        self.version = version
        schema = version.schema
        self.tally = Tally(ARROW, special_values)
        self.decoder = TableDecoder(schema, self.tally)
        self.expected = np.array([_format(c) for c in schema.columns], dtype=np.uint8)
        self.names = pa.array([c.name for c in schema.columns], pa.string())
        self.row_fields = list(self.decoder.arrow_schema)
        self.full = change_schema(schema)


def _format(column: Column) -> int:
    """How the column's fields are sent. Of a type that was dropped since (it has no schema) nobody knows."""
    if not column.type.schema:
        return ANY
    return TEXT if column.as_text else BINARY


class ChangeDecoder:
    """Keeps every relation it was told of, whoever owns the table (SEMANTICS 17). For one stream and one thread."""

    def __init__(self, describe: Describe, special_values: SpecialValues = "null") -> None:
        self._describe = describe
        self._special_values: SpecialValues = special_values
        self._relations: dict[int, _Reader] = {}
        self._readers: dict[tuple[int, int], _Reader] = {}

    def decode(
        self, events: Events, txns: npt.NDArray[np.int64], streamed: dict[int, SchemaVersion] | None = None
    ) -> Iterator[TableChanges | SeenMessage]:
        """The changes by table, and messages. `txns` as in `WholeTransactions`.

        A streamed transaction may see a table in a shape that nobody else sees yet: give it a map of its own in
        `streamed`, and `adopt` that at its commit.
        """
        is_change = _IS_CHANGE[events.kinds]
        if is_change.all():
            yield from self._by_table(events, np.arange(len(events)), txns, streamed)
            return
        begin = 0
        for other in np.flatnonzero(~is_change):
            if other > begin:
                yield from self._by_table(events, np.arange(begin, other), txns, streamed)
            begin = int(other) + 1
            seen = self._describing(events, int(other), txns, streamed)
            if seen is not None:
                yield seen
        if begin < len(events):
            yield from self._by_table(events, np.arange(begin, len(events)), txns, streamed)

    def adopt(self, streamed: dict[int, SchemaVersion]) -> None:
        """What a streamed transaction was told holds for all once it has committed."""
        for relation, version in streamed.items():
            self._relations[relation] = self._reader(version)

    def special_counts(self) -> dict[str, dict[str, int]]:
        """Values treated by policy, by table and kind."""
        found: dict[str, dict[str, int]] = {}
        for reader in list(self._readers.values()):
            for special, count in list(reader.tally.counts.items()):
                counts = found.setdefault(str(reader.version.schema.name), {})
                counts[special.name] = counts.get(special.name, 0) + count
        return found

    def _reader(self, version: SchemaVersion) -> _Reader:
        key = (version.schema.id, version.version)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = _Reader(version, self._special_values)
        return reader

    def _describing(
        self,
        events: Events,
        event: int,
        txns: npt.NDArray[np.int64],
        streamed: dict[int, SchemaVersion] | None,
    ) -> SeenMessage | None:
        position = events.base + int(events.firsts[event])
        body = events.body(event)
        kind = int(events.kinds[event])
        txn = int(events.txns[event])
        if kind == RELATION:
            relation = parse_relation(body, position)
            version = self._describe(relation, int(txns[COMMIT_LSN, txn]))
            if streamed is None:
                self._relations[relation.id] = self._reader(version)
            else:
                streamed[relation.id] = version
        elif kind == MESSAGE:
            message = parse_message(body, position)
            if not message.transactional:
                # Between transactions it is one of its own, at the place it was written.
                return SeenMessage(message.lsn, message.lsn, 0, 0, 0, message)
            if txn < 0:
                raise BadBytesError("a transactional message outside of a transaction", position=position)
            one = txns[:, txn]
            return SeenMessage(
                int(one[COMMIT_LSN]),
                int(one[END_LSN]),
                int(events.ordinals[event]),
                int(one[XID]),
                int(one[COMMIT_TIME]),
                message,
            )
        elif kind == TYPE:
            parse_type(body, position)
        else:
            parse_origin(body, position)
        return None

    def _by_table(
        self,
        events: Events,
        chosen: npt.NDArray[np.int64],
        txns: npt.NDArray[np.int64],
        streamed: dict[int, SchemaVersion] | None,
    ) -> Iterator[TableChanges]:
        relations = events.relations[chosen]
        first = int(relations[0])
        if (relations == first).all():
            yield self._changes(events, first, chosen, txns, streamed)
            return
        order = np.argsort(relations, kind="stable")
        grouped = relations[order]
        borders = np.flatnonzero(np.diff(grouped)) + 1
        for group in np.split(order, borders):
            yield self._changes(events, int(relations[group[0]]), chosen[group], txns, streamed)

    def _changes(
        self,
        events: Events,
        relation: int,
        chosen: npt.NDArray[np.int64],
        txns: npt.NDArray[np.int64],
        streamed: dict[int, SchemaVersion] | None,
    ) -> TableChanges:
        reader = (
            self._reader(streamed[relation]) if streamed and relation in streamed else self._relations.get(relation)
        )
        if reader is None:
            raise BadBytesError("a change of a relation that was never described", position=events.base)
        kinds = events.kinds[chosen]
        news, olds = events.news[chosen], events.olds[chosen]
        firsts = events.firsts[chosen]
        of = txns[:, events.txns[chosen]]
        row, marks = self._image(reader, events, firsts + olds, news, (kinds == INSERT) | (kinds == UPDATE))
        count = len(chosen)
        version = np.full(count, reader.version.version, dtype=np.int32)
        columns: dict[str, pa.Array] = {
            "commit_lsn": pa.array(of[COMMIT_LSN]),
            "end_lsn": pa.array(of[END_LSN]),
            "ordinal": pa.array(events.ordinals[chosen]),
            "xid": pa.array(of[XID]),
            "commit_time": pa.array(of[COMMIT_TIME]).view(COMMIT_TIME_TYPE),
            "op": pa.DictionaryArray.from_arrays(pa.array(_OP_CODE[kinds]), pa.array(OPS)),
            "schema_version": pa.array(version),
            "row": row,
        }
        # Not by the number of its fields: that of a table without columns has none.
        has_old = ((kinds == UPDATE) | (kinds == DELETE)) & (events.old_kinds[chosen] != 0)
        if has_old.any():
            columns |= self._old_images(reader, events, chosen, has_old)
        if marks is not None:
            columns["unchanged"] = _names_of(marks, reader.names)
        schema = pa.schema([reader.full.field(name) for name in columns])
        return TableChanges(reader.version, pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))

    def _image(
        self,
        reader: _Reader,
        events: Events,
        firsts: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        present: npt.NDArray[np.bool_],
    ) -> tuple[pa.StructArray, npt.NDArray[np.uint8] | None]:
        """The rows as a struct column, and (columns × rows) which of their fields are unchanged, if any."""
        width, count = len(reader.expected), len(firsts)
        starts = np.empty((width, count), dtype=np.int32)
        lengths = np.empty((width, count), dtype=np.int32)
        marks = np.empty((width, count), dtype=np.uint8)
        bad, unchanged = gather_fields(
            firsts, counts, events.starts, events.lengths, events.formats, reader.expected, starts, lengths, marks
        )
        if bad == OK and width and (short := present & (counts == 0)).any():
            bad = int(np.argmax(short))  # a row that is there has fields; only one that is not may be all NULL
        if bad != OK:
            raise BadBytesError(
                f"a row of {reader.version.schema.name} that does not fit the table's description",
                position=events.base + int(events.starts[firsts[bad]] if len(events.starts) > firsts[bad] else 0),
            )
        batch = reader.decoder.decode(Rows(events.buf, starts, lengths, events.base))
        mask = None if present.all() else pa.array(~present)
        row = struct_of(batch.columns, reader.row_fields, count, mask)
        return row, (marks if unchanged else None)

    def _old_images(
        self, reader: _Reader, events: Events, chosen: npt.NDArray[np.int64], has_old: npt.NDArray[np.bool_]
    ) -> dict[str, pa.Array]:
        """Decoded for those changes that have one, then put in their places."""
        those = chosen[has_old]
        image, _ = self._image(
            reader, events, events.firsts[those], events.olds[those], np.ones(len(those), dtype=np.bool_)
        )
        codes = (events.old_kinds[those] != KEY).astype(np.int8)
        kinds = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(OLD_KINDS))
        if not has_old.all():
            place = np.cumsum(has_old) - 1
            places = pa.array(place, mask=~has_old)
            image, kinds = image.take(places), kinds.take(places)
        return {"old": image, "old_kind": kinds}


def struct_of(columns: list[pa.Array], fields: list[pa.Field], count: int, mask: pa.Array | None) -> pa.StructArray:
    """A struct column; a table without columns still has rows."""
    if columns:
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    valid = None if mask is None else pa.array([not hidden for hidden in mask.to_pylist()]).buffers()[1]
    return pa.Array.from_buffers(pa.struct(fields), count, [valid])


def _names_of(marks: npt.NDArray[np.uint8], names: pa.Array) -> pa.ListArray:
    """For each row the names of its marked columns; NULL for a row without."""
    per_row = marks.sum(axis=0, dtype=np.int32)
    offsets = np.zeros(len(per_row) + 1, dtype=np.int32)
    np.cumsum(per_row, out=offsets[1:])
    _, columns = np.nonzero(marks.T)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(columns)), mask=pa.array(per_row == 0))
