"""pgoutput's messages: find every change, and every field of every change, in frames of whole transactions.

The walk fills tables of numbers (which change, of which relation, where its fields are) and validates every bound, so
that decoding can go by column. Messages that describe (Relation, Type, Origin, Message) are listed with their place
and parsed by the functions below: they are rare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from walrelay.errors import BadBytesError
from walrelay.wire.kernel import OK, be16, be32, kernel
from walrelay.wire.replication import MESSAGE_AT

INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
RELATION, TYPE, ORIGIN, MESSAGE = ord("R"), ord("Y"), ord("O"), ord("M")
KEY, OLD_ROW = ord("K"), ord("O")
NULL, UNCHANGED = -1, -2
"""Lengths of fields that have no bytes."""
TEXT, BINARY, ANY = ord("t"), ord("b"), 0

DONE, FULL = 0, 1
BAD_MESSAGE, BAD_TUPLE, BAD_FIELD, BAD_END, BAD_FRAME = -1, -2, -3, -4, -5
REASONS = {
    BAD_MESSAGE: "an unknown message of pgoutput",
    BAD_TUPLE: "a change without the row that belongs to it",
    BAD_FIELD: "a field with an impossible length or kind",
    BAD_END: "a message that does not end where its frame ends",
    BAD_FRAME: "a message with an impossible length",
}


@kernel
def walk_tuple(buf: Any, at: Any, end: Any, starts: Any, lengths: Any, formats: Any, used: Any) -> Any:
    """One TupleData: (where it ends or a bad status, fields found)."""
    if at + 2 > end:
        return np.int64(BAD_TUPLE), np.int64(0)
    width = np.int64(be16(buf, at))
    at += 2
    if width < 0 or used + width > starts.size:
        return np.int64(BAD_TUPLE), np.int64(0)
    for column in range(width):
        if at >= end:
            return np.int64(BAD_TUPLE), np.int64(0)
        kind = buf[at]
        at += 1
        slot = used + column
        formats[slot] = kind
        starts[slot] = 0
        if kind == 110:  # n
            lengths[slot] = NULL
        elif kind == 117:  # u
            lengths[slot] = UNCHANGED
        elif kind == 98 or kind == 116:  # b, t
            if at + 4 > end:
                return np.int64(BAD_FIELD), np.int64(0)
            length = np.int64(be32(buf, at))
            at += 4
            if length < 0 or at + length > end:
                return np.int64(BAD_FIELD), np.int64(0)
            starts[slot] = at
            lengths[slot] = length
            at += length
        else:
            return np.int64(BAD_FIELD), np.int64(0)
    return np.int64(at), width


@kernel
def is_in(value: Any, sorted_values: Any) -> Any:
    low = 0
    high = sorted_values.size
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < sorted_values.size and sorted_values[low] == value


@kernel
def walk_messages(
    buf: Any, at: Any, end: Any, streamed: bool, undone: Any, state: Any,
    frames: Any, kinds: Any, relations: Any, txns: Any, ordinals: Any, old_kinds: Any, firsts: Any, olds: Any,
    news: Any, starts: Any, lengths: Any, formats: Any,
) -> Any:  # fmt: skip
    """Walk frames from `at`: (status, where it stopped, events, fields).

    `state` is (transaction's number, next ordinal), kept from call to call. With `streamed` every message names its
    (sub)transaction after its kind, and those in `undone` (sorted) are passed over. Field 0 is kept as a NULL for
    changes that have no such row. Of describing messages `firsts` and `news` are place and length of their body.
    """
    at = np.int64(at)
    events = np.int64(0)
    used = np.int64(1)
    starts[0] = 0
    lengths[0] = NULL
    formats[0] = 110
    most_events = kinds.size
    most_fields = starts.size
    while at < end:
        if at + 6 > end or buf[at] != 100:
            return BAD_FRAME, at, events, used
        size = np.int64(be32(buf, at + 1))
        after = at + 1 + size
        if size < 5 or after > end:
            return BAD_FRAME, at, events, used
        if buf[at + 5] == 107:  # keepalive
            at = after
            continue
        if size < 30:
            return BAD_FRAME, at, events, used
        here = at + 30
        kind = buf[here]
        here += 1
        if kind == 66:  # B
            if not streamed and state[2] == 0:
                state[0] += 1
                state[1] = 0
            at = after
            continue
        if kind == 67:  # C
            at = after
            continue
        # A message between transactions is part of none, and names no subtransaction that could be undone.
        if streamed:
            if here + 4 > after:
                return BAD_END, at, events, used
            xid = np.int64(be32(buf, here)) & 0xFFFFFFFF
            here += 4
            if is_in(xid, undone):
                at = after
                continue
        if events >= most_events:
            return FULL, at, events, used
        frames[events] = at
        kinds[events] = kind
        txns[events] = state[0]
        ordinals[events] = state[1]
        old_kinds[events] = 0
        firsts[events] = 0
        olds[events] = 0
        news[events] = 0
        if kind == 82 or kind == 89 or kind == 79 or kind == 77:  # R, Y, O, M
            firsts[events] = here
            news[events] = after - here
            events += 1
            at = after
            continue
        if here + 4 > after:
            return BAD_END, at, events, used
        relation = np.int64(be32(buf, here)) & 0xFFFFFFFF
        here += 4
        if kind == 84:  # T
            if here + 1 > after or here + 1 + 4 * relation != after:
                return BAD_END, at, events, used
            if events + relation > most_events:
                return FULL, at, events, used
            options = buf[here]
            here += 1
            for _ in range(relation):
                frames[events] = at
                kinds[events] = 84
                txns[events] = state[0]
                ordinals[events] = state[1]
                relations[events] = np.int64(be32(buf, here)) & 0xFFFFFFFF
                old_kinds[events] = options
                firsts[events] = 0
                olds[events] = 0
                news[events] = 0
                here += 4
                state[1] += 1
                events += 1
            at = after
            continue
        if kind != 73 and kind != 85 and kind != 68:  # I, U, D
            return BAD_MESSAGE, at, events, used
        # Two rows of 1600 columns at most: stop while there is room, and go on in the next call.
        if used + 3200 > most_fields:
            return FULL, at, events, used
        if here >= after:
            return BAD_TUPLE, at, events, used
        relations[events] = relation
        firsts[events] = used
        mark = buf[here]
        here += 1
        if kind != 73 and (mark == 75 or mark == 79):  # K, O
            old_kinds[events] = mark
            here, width = walk_tuple(buf, here, after, starts, lengths, formats, used)
            if here < 0:
                return here, at, events, used
            olds[events] = width
            used += width
            if kind == 85:
                if here >= after:
                    return BAD_TUPLE, at, events, used
                mark = buf[here]
                here += 1
        elif kind == 68:
            return BAD_TUPLE, at, events, used
        if kind != 68:
            if mark != 78:  # N
                return BAD_TUPLE, at, events, used
            here, width = walk_tuple(buf, here, after, starts, lengths, formats, used)
            if here < 0:
                return here, at, events, used
            news[events] = width
            used += width
        if here != after:
            return BAD_END, at, events, used
        state[1] += 1
        events += 1
        at = after
    return DONE, at, events, used


@kernel
def gather_fields(
    firsts: Any, counts: Any, starts: Any, lengths: Any, formats: Any, expected: Any,
    out_starts: Any, out_lengths: Any, marks: Any,
) -> Any:  # fmt: skip
    """Fields of many rows → columns × rows: (OK or the bad row, how many fields are unchanged).

    A row with a count of 0 is all NULL; else it must have a field for each column, of the expected format (or `ANY`).
    `marks` (columns × rows) gets a 1 where a field is unchanged.
    """
    width = expected.size
    unchanged = 0
    for row in range(firsts.size):
        if counts[row] == 0:
            for column in range(width):
                out_starts[column, row] = 0
                out_lengths[column, row] = NULL
                marks[column, row] = 0
            continue
        if counts[row] != width:
            return row, unchanged
        first = firsts[row]
        for column in range(width):
            length = lengths[first + column]
            out_starts[column, row] = starts[first + column]
            marks[column, row] = 0
            if length == UNCHANGED:
                marks[column, row] = 1
                unchanged += 1
                length = NULL
            elif length >= 0 and expected[column] != ANY and formats[first + column] != expected[column]:
                return row, unchanged
            out_lengths[column, row] = length
    return OK, unchanged


@dataclass(frozen=True, slots=True)
class Events:
    """Changes and describing messages in the order of the stream, one number each per array.

    `txns` are numbers of transactions in the piece, `firsts` where a change's fields begin in `starts`, `lengths` and
    `formats`: `olds` fields of the old image, then `news` of the new.
    """

    buf: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint8]
    relations: npt.NDArray[np.int64]
    txns: npt.NDArray[np.int64]
    ordinals: npt.NDArray[np.int64]
    old_kinds: npt.NDArray[np.uint8]
    firsts: npt.NDArray[np.int64]
    olds: npt.NDArray[np.int32]
    news: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    formats: npt.NDArray[np.uint8]
    base: int
    frames: npt.NDArray[np.int64]
    """Where the frames begin in `buf`."""

    def __len__(self) -> int:
        return len(self.kinds)

    def message(self, event: int) -> bytes:
        """The message itself, as pgoutput wrote it."""
        frame = int(self.frames[event])
        end = frame + 1 + int.from_bytes(self.buf[frame + 1 : frame + 5].tobytes(), "big")
        return self.buf[frame + MESSAGE_AT : end].tobytes()

    def body(self, event: int) -> bytes:
        """The bytes of a describing message, after its kind (and subtransaction)."""
        start = int(self.firsts[event])
        return self.buf[start : start + int(self.news[event])].tobytes()


NOTHING_UNDONE = np.empty(0, dtype=np.int64)


class MessageWalker:
    """Walks pieces. Its tables are used again: what it yields is good until the next step."""

    def __init__(self, most_events: int = 32_768, most_fields: int = 524_288) -> None:
        self._frames = np.empty(most_events, dtype=np.int64)
        self._kinds = np.empty(most_events, dtype=np.uint8)
        self._relations = np.empty(most_events, dtype=np.int64)
        self._txns = np.empty(most_events, dtype=np.int64)
        self._ordinals = np.empty(most_events, dtype=np.int64)
        self._old_kinds = np.empty(most_events, dtype=np.uint8)
        self._firsts = np.empty(most_events, dtype=np.int64)
        self._olds = np.empty(most_events, dtype=np.int32)
        self._news = np.empty(most_events, dtype=np.int32)
        self._starts = np.empty(most_fields, dtype=np.int32)
        self._lengths = np.empty(most_fields, dtype=np.int32)
        self._formats = np.empty(most_fields, dtype=np.uint8)

    def walk_whole(self, buf: npt.NDArray[np.uint8], start: int, end: int, base: int) -> Iterator[Events]:
        """Frames of whole transactions, which count up from 0."""
        state = np.array([-1, 0, 0], dtype=np.int64)
        yield from self._walk(buf, start, end, base, False, NOTHING_UNDONE, state)

    def walk_part(
        self,
        buf: npt.NDArray[np.uint8],
        base: int,
        *,
        streamed: bool,
        undone: npt.NDArray[np.int64],
        state: npt.NDArray[np.int64],
    ) -> Iterator[Events]:
        """Frames of one large transaction, whose number is 0; `state` (see `part_state`) goes from part to part."""
        yield from self._walk(buf, 0, len(buf), base, streamed, undone, state)

    def _walk(
        self,
        buf: npt.NDArray[np.uint8],
        at: int,
        end: int,
        base: int,
        streamed: bool,
        undone: npt.NDArray[np.int64],
        state: npt.NDArray[np.int64],
    ) -> Iterator[Events]:
        while at < end:
            status, stopped, count, fields = walk_messages(
                buf, at, end, streamed, undone, state,
                self._frames, self._kinds, self._relations, self._txns, self._ordinals, self._old_kinds,
                self._firsts, self._olds, self._news, self._starts, self._lengths, self._formats,
            )  # fmt: skip
            if status < 0:
                raise BadBytesError(REASONS[int(status)], position=base + int(stopped))
            if status == FULL and count == 0:
                raise BadBytesError("a message with more changes than one can hold", position=base + int(stopped))
            at = int(stopped)
            if count:
                yield Events(
                    buf, self._kinds[:count], self._relations[:count], self._txns[:count], self._ordinals[:count],
                    self._old_kinds[:count], self._firsts[:count], self._olds[:count], self._news[:count],
                    self._starts[:fields], self._lengths[:fields], self._formats[:fields], base,
                    self._frames[:count],
                )  # fmt: skip


def part_state() -> npt.NDArray[np.int64]:
    """For `walk_part`: transaction 0, ordinal 0, and a Begin that counts no further."""
    return np.array([0, 0, 1], dtype=np.int64)


@kernel
def whole_frames(buf: Any) -> Any:
    """The length of the whole frames at the front of `buf`: bytes may have been read up to the middle of one."""
    at = np.int64(0)
    while at + 5 <= buf.size:
        size = np.int64(be32(buf, at + 1))
        if size < 4 or at + 1 + size > buf.size:
            break
        at += 1 + size
    return at


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message: how the changes that follow are to be read."""

    id: int
    schema: str
    name: str
    identity: str
    """d, n, f or i, as in pg_class.relreplident."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


class _Body:
    """Reads a describing message; running over its end, or not reaching it, is one kind of error."""

    def __init__(self, body: bytes, position: int) -> None:
        self._body = body
        self._at = 0
        self._position = position

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._body):
            raise self.bad("a message that is too short")
        taken = self._body[self._at : self._at + size]
        self._at += size
        return taken

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise self.bad("a name without an end")
        try:
            value = self._body[self._at : end].decode()
        except UnicodeDecodeError:
            raise self.bad("a name that is not UTF-8") from None
        self._at = end + 1
        return value

    def done(self) -> None:
        if self._at != len(self._body):
            raise self.bad("a message that is too long")

    def bad(self, reason: str) -> BadBytesError:
        return BadBytesError(reason, position=self._position)


def parse_relation(body: bytes, position: int) -> Relation:
    reader = _Body(body, position)
    id_ = reader.number(4)
    # An empty schema name is how the protocol says pg_catalog.
    schema, name = reader.text() or "pg_catalog", reader.text()
    identity = reader.take(1).decode("latin-1")
    if identity not in "dnfi":
        raise reader.bad("a relation with an unknown replica identity")
    columns = tuple(_relation_column(reader) for _ in range(reader.number(2)))
    reader.done()
    if len({column.name for column in columns}) != len(columns):
        raise reader.bad("a relation with two columns of one name")
    return Relation(id_, schema, name, identity, columns)


def _relation_column(reader: _Body) -> RelationColumn:
    flags = reader.number(1)
    name = reader.text()
    type_ = reader.number(4)
    return RelationColumn(name, type_, reader.number(4, signed=True), bool(flags & 1))


def parse_message(body: bytes, position: int) -> LogicalMessage:
    reader = _Body(body, position)
    flags = reader.number(1)
    lsn = reader.number(8)
    prefix = reader.text()
    content = reader.take(reader.number(4))
    reader.done()
    return LogicalMessage(bool(flags & 1), lsn, prefix, content)


def parse_origin(body: bytes, position: int) -> str:
    """The name of the replication origin a transaction came from."""
    reader = _Body(body, position)
    reader.number(8)
    name = reader.text()
    reader.done()
    return name


def parse_type(body: bytes, position: int) -> tuple[int, str, str]:
    """oid, schema and name of a type that is not built in; the catalog tells us more, so this is only checked."""
    reader = _Body(body, position)
    oid = reader.number(4)
    schema, name = reader.text(), reader.text()
    reader.done()
    return oid, schema, name
