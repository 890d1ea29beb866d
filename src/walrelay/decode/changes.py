"""Changes found by a walk → Arrow record batches, one per table and schema version, as the log holds them.

The rows themselves go through the same decoder as the copy's; this file adds what makes them changes: position, kind,
old image, and which columns were not sent because their TOASTed value did not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from walrelay.decode.base import ARROW, Tally
from walrelay.decode.images import gathered, names_of, otherwise_sent, struct_of
from walrelay.decode.quarantine import KeyReader, QuarantinedChanges, quarantined
from walrelay.decode.table import TableDecoder, Unreadable, arrow_schema
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.schema import Column, SchemaVersion, TableSchema
from walrelay.model.special import Special, SpecialValues
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

Describe = Callable[[Relation, int, int], SchemaVersion]
"""Gives the schema version that a Relation message means, for a transaction with this commit LSN and xid."""


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
    treated: Counter[Special] = field(default_factory=Counter)
    """Values in them that were treated by policy."""


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
        self.decoder = TableDecoder(schema, self.tally, keys=schema.key_columns)
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
    """Keeps every relation it was told of, whoever owns the table (SEMANTICS 17). For one stream and one thread.

    A row whose values cannot be decoded concerns its table alone (SEMANTICS 21): it is given out as it came. A message
    that is not what the protocol promises is an error of the whole stream.
    """

    def __init__(self, describe: Describe, special_values: SpecialValues = "null") -> None:
        self._describe = describe
        self._special_values: SpecialValues = special_values
        self._relations: dict[int, _Reader] = {}
        self._told: dict[int, Relation] = {}
        """The last description of each."""
        self._readers: dict[tuple[int, int], _Reader] = {}
        self._described = 0
        """The relation that was described last, unless something came since."""
        self.parts: list[tuple[int, int, int]] = []
        """Partition, root and commit LSN, for whoever reads and clears them: of a partition that is published by its
        root pgoutput describes the root right before it (maybe_send_schema). So it does with tables that are truncated
        together, which are known by having changes of their own."""

    def decode(
        self, events: Events, txns: npt.NDArray[np.int64], streamed: dict[int, SchemaVersion] | None = None
    ) -> Iterator[TableChanges | QuarantinedChanges | SeenMessage]:
        """The changes by table, and messages. `txns` as in `WholeTransactions`.

        A streamed transaction may see a table in a shape that nobody else sees yet: give it a map of its own in
        `streamed`, and `adopt` that at its commit.
        """
        is_change = _IS_CHANGE[events.kinds]
        if is_change.all():
            self._described = 0
            yield from self._by_table(events, np.arange(len(events)), txns, streamed)
            return
        begin = 0
        for other in np.flatnonzero(~is_change):
            if other > begin:
                self._described = 0
                yield from self._by_table(events, np.arange(begin, other), txns, streamed)
            begin = int(other) + 1
            seen = self._describing(events, int(other), txns, streamed)
            if seen is not None:
                yield seen
        if begin < len(events):
            self._described = 0
            yield from self._by_table(events, np.arange(begin, len(events)), txns, streamed)

    def adopt(self, streamed: dict[int, SchemaVersion]) -> None:
        """What a streamed transaction was told holds for all once it has committed."""
        for relation, version in streamed.items():
            self._relations[relation] = self._reader(version)

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
            self._told[relation.id] = relation
            if self._described not in (0, relation.id):
                self.parts.append((relation.id, self._described, int(txns[COMMIT_LSN, txn])))
            self._described = relation.id
            self._learn(relation, txns[:, txn], streamed)
        elif kind == MESSAGE:
            self._described = 0
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

    def _learn(
        self, relation: Relation, txn: npt.NDArray[np.int64], streamed: dict[int, SchemaVersion] | None
    ) -> _Reader:
        version = self._describe(relation, int(txn[COMMIT_LSN]), int(txn[XID]))
        reader = self._reader(version)
        if streamed is None:
            self._relations[relation.id] = reader
        else:
            streamed[relation.id] = version
        return reader

    def _by_table(
        self,
        events: Events,
        chosen: npt.NDArray[np.int64],
        txns: npt.NDArray[np.int64],
        streamed: dict[int, SchemaVersion] | None,
    ) -> Iterator[TableChanges | QuarantinedChanges]:
        relations = events.relations[chosen]
        first = int(relations[0])
        if (relations == first).all():
            yield from self._of_table(events, first, chosen, txns, streamed)
            return
        order = np.argsort(relations, kind="stable")
        grouped = relations[order]
        borders = np.flatnonzero(np.diff(grouped)) + 1
        for group in np.split(order, borders):
            yield from self._of_table(events, int(relations[group[0]]), chosen[group], txns, streamed)

    def _of_table(
        self,
        events: Events,
        relation: int,
        chosen: npt.NDArray[np.int64],
        txns: npt.NDArray[np.int64],
        streamed: dict[int, SchemaVersion] | None,
    ) -> Iterator[TableChanges | QuarantinedChanges]:
        reader = (
            self._reader(streamed[relation]) if streamed and relation in streamed else self._relations.get(relation)
        )
        if reader is None:
            raise BadBytesError("a change of a relation that was never described", position=events.base)
        try:
            whole = self._changes(reader, events, chosen, txns)
        except (BadBytesError, SpecialValueError):
            bad = self._bad(reader, events, chosen)
            if not bad:  # each of them can be read, but not all at once
                if len(chosen) == 1:
                    raise
                for half in np.array_split(chosen, 2):
                    yield from self._of_table(events, relation, half, txns, streamed)
                return
        else:
            yield whole
            return
        first = min(bad)
        if any(isinstance(error, BadBytesError) for error in bad.values()):
            # A composite type may have been altered, which no message tells.
            fresh = self._learn(self._told[relation], txns[:, events.txns[chosen[first]]], streamed)
            if fresh is not reader:
                if first:
                    yield self._changes(reader, events, chosen[:first], txns)
                reader, chosen = fresh, chosen[first:]
                bad = self._bad(reader, events, chosen)
        yield from self._parted(reader, events, chosen, txns, bad)

    def _parted(
        self,
        reader: _Reader,
        events: Events,
        chosen: npt.NDArray[np.int64],
        txns: npt.NDArray[np.int64],
        bad: dict[int, Unreadable],
    ) -> Iterator[TableChanges | QuarantinedChanges]:
        """The good ones, then the bad ones."""
        good = np.ones(len(chosen), dtype=np.bool_)
        good[list(bad)] = False
        if good.any():
            yield self._changes(reader, events, chosen[good], txns)
        if bad:
            those = chosen[~good]
            errors = dict(enumerate(bad[place] for place in sorted(bad)))
            yield quarantined(reader.version, events, those, txns, errors, self._keys(reader, events, those))

    def _bad(self, reader: _Reader, events: Events, chosen: npt.NDArray[np.int64]) -> dict[int, Unreadable]:
        """Which of the changes cannot be decoded, by place in `chosen`, and why; raises for a bad message."""
        firsts, olds, news = events.firsts[chosen], events.olds[chosen], events.news[chosen]
        found: dict[int, Unreadable] = {}
        for begins, counts in ((firsts, olds), (firsts + olds, news)):
            for place in np.flatnonzero(otherwise_sent(reader.expected, events, begins, counts)).tolist():
                reason = f"a value that was sent in another form than its type has now, in {reader.version.schema.name}"
                found.setdefault(place, BadBytesError(reason, position=events.base))
        for begins, counts in ((firsts, olds), (firsts + olds, news)):
            there = counts > 0
            there[list(found)] = False
            places = np.flatnonzero(there)
            if len(places):
                rows, _ = gathered(reader.expected, reader.version.schema.name, events, begins[places], counts[places])
                bad = reader.decoder.bad_rows(rows)
                found.update({int(places[row]): error for row, error in bad.items()})
        return found

    def _keys(self, reader: _Reader, events: Events, chosen: npt.NDArray[np.int64]) -> list[str | None]:
        """The keys of changes: of the row before where that was sent, else of the new one."""
        olds = events.olds[chosen]
        firsts, counts = events.firsts[chosen], np.where(olds > 0, olds, events.news[chosen])
        if otherwise_sent(reader.expected, events, firsts, counts).any():
            return [None] * len(chosen)
        schema = reader.version.schema
        return KeyReader(schema).texts(gathered(reader.expected, schema.name, events, firsts, counts)[0])

    def _changes(
        self, reader: _Reader, events: Events, chosen: npt.NDArray[np.int64], txns: npt.NDArray[np.int64]
    ) -> TableChanges:
        reader.tally.counts.clear()
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
            columns["unchanged"] = names_of(marks, reader.names)
        schema = pa.schema([reader.full.field(name) for name in columns])
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        return TableChanges(reader.version, batch, Counter(reader.tally.counts))

    def _image(
        self,
        reader: _Reader,
        events: Events,
        firsts: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        present: npt.NDArray[np.bool_],
    ) -> tuple[pa.StructArray, npt.NDArray[np.uint8] | None]:
        """The rows as a struct column, and (columns × rows) which of their fields are unchanged, if any."""
        rows, marks = gathered(reader.expected, reader.version.schema.name, events, firsts, counts, present)
        batch = reader.decoder.decode(rows)
        mask = None if present.all() else pa.array(~present)
        return struct_of(batch.columns, reader.row_fields, len(firsts), mask), marks

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
